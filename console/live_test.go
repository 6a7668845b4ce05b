package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/console"
)

// stream opens a page's stream of server-sent events. next returns the HTML of its next event, "" at its end.
func (s *site) stream(ctx context.Context, path string) (status int, next func() string, closeStream func()) {
	s.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	s.Check(err)
	r.Header.Set("Accept", "text/event-stream")
	answer, err := s.client.Do(r)
	s.Check(err)
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return answer.StatusCode, func() (page string) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				s.Check(json.Unmarshal([]byte(data), &page))
				return page
			}
		}
		return ""
	}, func() { _ = answer.Body.Close() }
}

// TestStream has a page that is kept up to date by server-sent events.
func TestStream(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{})
	status, next, closeStream := s.stream(s.Ctx, "locks")
	defer closeStream()
	if page := next(); status != http.StatusOK || !strings.Contains(page, "Nobody has a lease now.") {
		t.Fatal(status, page)
	}
	if _, err := s.locker("worker-3").Acquire(s.Ctx, "order/42"); err != nil {
		t.Fatal(err)
	}
	for page := ""; !strings.Contains(page, "order/42"); {
		if page = next(); page == "" {
			t.Fatal("the stream has ended")
		}
	}
	// It ends with the session.
	s.post("logout", nil)
	for next() != "" {
	}
	if status, next, closeStream := s.stream(s.Ctx, "locks"); status != http.StatusUnauthorized || next() != "" {
		t.Error(status)
	} else {
		closeStream()
	}
}

// TestStreamBounds sends no event for a page that cannot be shown, and bounds the streams.
func TestStreamBounds(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{})
	if _, next, closeStream := s.stream(s.Ctx, "operation?id=00"); next() != "" {
		t.Error("an event without a page")
	} else {
		closeStream()
	}
	for range 64 {
		status, next, closeStream := s.stream(s.Ctx, "reaper")
		t.Cleanup(closeStream)
		if status != http.StatusOK || next() == "" {
			t.Fatal(status)
		}
	}
	status, _, closeStream := s.stream(s.Ctx, "reaper")
	defer closeStream()
	if status != http.StatusServiceUnavailable {
		t.Error(status)
	}
	if status, page := s.get("reaper"); status != http.StatusOK { // it is still there to be asked for
		t.Error(status, page)
	}
}

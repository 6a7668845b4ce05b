package holdfastslog_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastslog"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// lines collects the log lines of all goroutines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) records(tb testing.TB) (records []map[string]any) {
	tb.Helper()
	for line := range strings.Lines(l.String()) {
		r := map[string]any{}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			tb.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

func logTo(l *lines) holdfast.Options {
	return holdfast.Options{Tracers: []holdfast.Tracer{holdfastslog.New(slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: holdfastslog.LevelStatement})))}}
}

// TestLevels checks that exactly the events that need attention are logged at Warn or Error.
func TestLevels(t *testing.T) {
	t.Parallel()
	out := &lines{}
	tracetest.Everything(t, logTo(out))
	levels := map[string]map[string]bool{}
	for _, r := range out.records(t) {
		what, _ := r["msg"].(string)
		if outcome, ok := r["outcome"].(string); ok && what == "holdfast: call" {
			what += " " + outcome
		}
		level, _ := r["level"].(string)
		if levels[level] == nil {
			levels[level] = map[string]bool{}
		}
		levels[level][what] = true
	}
	for level, want := range map[string][]string{
		"ERROR":   {"holdfast: call unfinished", "holdfast: outbox.dead", "holdfast: staged.parked"},
		"WARN":    {"holdfast: call aborted", "holdfast: call error", "holdfast: call unknown", "holdfast: lease.lost"},
		"INFO":    {"holdfast: call retrying", "holdfast: http.unkeyed", "holdfast: similar.again"},
		"DEBUG-4": {"holdfast: statement"},
	} {
		if got := slices.Sorted(maps.Keys(levels[level])); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", level, got, want)
		}
	}
	for _, want := range []string{"holdfast: call executed", "holdfast: call replayed", "holdfast: lease.granted", "holdfast: lease.ended", "holdfast: reaper.task"} {
		if !levels["DEBUG"][want] {
			t.Errorf("DEBUG has no %q", want)
		}
	}
	refused := &lines{}
	tracer := holdfastslog.New(slog.New(slog.NewJSONHandler(refused, nil)))
	tracer.Event(t.Context(), holdfast.Event{Name: "reaper.refused", Duration: time.Hour})
	tracer.Event(t.Context(), holdfast.Event{Name: "server.unproven", Duration: time.Hour})
	if r := refused.records(t); len(r) != 2 || r[0]["level"] != "ERROR" || r[0]["jump"] != float64(time.Hour) || r[1]["level"] != "WARN" || r[1]["left"] != float64(time.Hour) {
		t.Errorf("%v", r)
	}
}

// TestLoggedFields checks that docs/reference/observability.md lists exactly the logged fields.
func TestLoggedFields(t *testing.T) {
	t.Parallel()
	out := &lines{}
	tracetest.Everything(t, logTo(out))
	tracer := holdfastslog.New(slog.New(slog.NewJSONHandler(out, nil)))
	tracer.Event(t.Context(), holdfast.Event{Name: "reaper.refused"})                       // in production this needs a clock that jumps
	tracer.Event(t.Context(), holdfast.Event{Name: "server.unproven", Duration: time.Hour}) // and this an update of the server
	got := map[string]bool{}
	for _, r := range out.records(t) {
		for k := range r {
			got[k] = true
		}
	}
	for _, handlers := range []string{"time", "level", "msg"} {
		delete(got, handlers)
	}
	text, err := os.ReadFile("../docs/reference/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| field |")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("docs/reference/observability.md has no table of fields")
	}
	want := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		want[m[1]] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("logged: %v\nin the docs: %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// TestNoSecretIsLogged runs on any engine. Its keys, owners and results look like a secret,
// errors of the driver quote them, and the DSN has a password.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	logs := map[string]*lines{}
	of := func(test string) *lines {
		mu.Lock()
		defer mu.Unlock()
		if logs[test] == nil {
			logs[test] = &lines{}
		}
		return logs[test]
	}
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		out := of(t.Name())
		e := conformance.New(t, conformance.SQL(), engine, logTo(out))
		e.ManyOwners()
		store, err := idempotency.New(e.Ctx, e.DB)
		if err != nil {
			t.Fatal(err)
		}
		op := idempotency.Op{Owner: tracetest.Secret, Name: "refund", Key: tracetest.Secret, Request: tracetest.Secret}
		for range 2 {
			if _, err := idempotency.Do(e.Ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := e.Exec(ctx, tx, `INSERT INTO refunds (refund_no, amount) VALUES ($1, 1)`, tracetest.Secret)
				return tracetest.Secret, err
			}); err != nil {
				t.Fatal(err)
			}
		}
		op.Key += "2"
		_, err = idempotency.Do(e.Ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := e.Exec(ctx, tx, `INSERT INTO refunds (refund_no, amount) VALUES ($1, 1)`, tracetest.Secret)
			return "", err
		})
		if err == nil || engine != dbtest.SQLite && !strings.Contains(err.Error(), tracetest.Secret) && holdfast.ServerCode(err) == "" {
			t.Fatalf("the driver's error is %v", err)
		}
		text := out.String()
		secrets := []string{tracetest.Secret}
		if u, err := url.Parse(e.DSN); err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok && len(password) > 5 {
				secrets = append(secrets, password)
			}
		}
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("a secret is logged: %s", text)
			}
		}
		for _, want := range []string{`"outcome":"executed"`, `"outcome":"replayed"`, `"outcome":"error"`, `"operation":"refund"`, `"error_code":"`, `"engine":"` + string(e.DB.Engine()) + `"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is not logged", want)
			}
		}
	})
	out := &lines{}
	tracetest.Everything(t, logTo(out))
	if strings.Contains(out.String(), tracetest.Secret) {
		t.Error(out.String())
	}
}

// TestErrorCode checks what may be logged of an error.
func TestErrorCode(t *testing.T) {
	t.Parallel()
	if c := holdfast.ServerCode(errors.New("23505")); c != "" {
		t.Error(c)
	}
	if c := holdfast.ServerCode(nil); c != "" {
		t.Error(c)
	}
}

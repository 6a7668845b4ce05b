package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// A storm starts its own program again as processes of the service. In tests, that is the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Exit(run(os.Args[1:]))
	}
	dbtest.VerifyNoLeaks(m)
}

// TestStorm kills and stops processes of the service on every engine. Every payment is made once, and ends.
func TestStorm(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		st := &storm{
			orders: 6, duplicates: 2, processes: 2, every: 300 * time.Millisecond, stopFor: 2500 * time.Millisecond, limit: 4 * dbtest.Hang,
			protect: protected, url: dbtest.DSN(t, engine), prefix: "o-",
		}
		f, err := st.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(f.problems) > 0 || f.moved == 0 {
			t.Errorf("%+v", f)
		}
	})
}

// TestControl makes the same payments without protection: they are made more than once.
func TestControl(t *testing.T) {
	t.Parallel()
	st := &storm{
		orders: 6, duplicates: 2, processes: 2, every: time.Hour, limit: 4 * dbtest.Hang,
		protect: unprotected, url: dbtest.DSN(t, dbtest.SQLite), prefix: "o-",
	}
	f, err := st.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.twice == 0 {
		t.Errorf("%+v", f)
	}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	p := func(order string) request { return request{order, "charge"} }
	done := func(order, reference string) row { return row{request: p(order), State: "done", Reference: reference} }
	paid := func(order, reference string) payment {
		return payment{request: p(order), bankAnswer: bankAnswer{"paid", reference}}
	}
	asked := []request{p("fine"), p("twice"), p("gone"), p("open"), p("unpaid"), p("other"), p("declined"), p("reversed")}
	rows := []row{
		done("fine", "1"),
		done("twice", "2"),
		{request: p("open"), State: "asked"},
		done("unpaid", "5"),
		done("other", "6"),
		{request: p("declined"), State: "declined"},
		done("reversed", "8"),
	}
	reversed := paid("reversed", "8")
	reversed.reversed = true
	f := audit(asked, rows, []payment{paid("fine", "1"), paid("twice", "2"), paid("twice", "3"), paid("gone", "4"), paid("other", "7"), reversed})
	if f.twice != 1 || f.lost != 4 || f.open != 1 || f.moved != 6 {
		t.Errorf("%+v", f)
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	now, body := time.Now(), []byte(`{"id":"1"}`)
	good := sign("secret", now, body)
	for name, c := range map[string]struct {
		signature, body string
		at              time.Time
		want            bool
	}{
		"good": {good, string(body), now, true}, "old": {good, string(body), now.Add(time.Hour), false}, "none": {"", string(body), now, false},
		"another body": {good, `{"id":"2"}`, now, false}, "another time": {strings.Replace(good, "t=1", "t=2", 1), string(body), now, false},
		"another secret": {sign("guess", now, body), string(body), now, false}, "short": {"t=", string(body), now, false},
	} {
		if got := signed("secret", c.signature, []byte(c.body), c.at); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPage presses the button twice and sees one payment, on the page and in the metrics.
func TestPage(t *testing.T) {
	t.Parallel()
	var address string
	b := newBank(func() string { return address })
	t.Cleanup(b.close)
	s, err := openService(t.Context(), dbtest.DSN(t, dbtest.SQLite), config{bank: b.url(), protect: protected, secret: demoSecret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	ctx, stop := context.WithCancel(t.Context())
	worked := make(chan struct{})
	go func() { defer close(worked); s.work(ctx) }()
	t.Cleanup(func() { stop(); <-worked })
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	address = server.URL
	get := func(path string) string {
		response, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 2 {
		response, err := server.Client().PostForm(server.URL+"/pay", url.Values{"order": {"a <b>"}, "kind": {"charge"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK { // of the page, to which it leads
			t.Errorf("%d", response.StatusCode)
		}
	}
	for end := time.Now().Add(dbtest.Hang); ; time.Sleep(10 * time.Millisecond) {
		page := get("/")
		if strings.Contains(page, "<td>succeeded</td>") || strings.Contains(page, "<td>rejected</td>") {
			if strings.Count(page, "a &lt;b&gt;") != 1 {
				t.Errorf("%s", page)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("it did not end: %s", page)
		}
	}
	if metrics := get("/metrics"); !strings.Contains(metrics, `holdfast_calls_total{call="staged.start",outcome="replayed"} 1`) {
		t.Error(metrics)
	}
	if n := len(b.entries()); n != 1 {
		t.Errorf("%d payments", n)
	}
}

package idemhttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// service is the service under test on one engine and one handle.
type service[Tx any] struct {
	*conformance.Env[Tx]
	url    string
	client *http.Client
	runs   atomic.Int32 // of the handler
	log    lines
}

type handler[Tx any] = func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error

// start serves h at /refunds/{order} and below /other/ for all methods. The DB is SingleOwner if o has no
// Owner.
func start[Tx any](e *conformance.Env[Tx], so idempotency.Options, o idemhttp.Options, h handler[Tx]) *service[Tx] {
	e.Helper()
	return on(e, &service[Tx]{Env: e}, so, o, h)
}

// replica starts another process of s, with a separate store.
func (s *service[Tx]) replica(so idempotency.Options, o idemhttp.Options, h handler[Tx]) *service[Tx] {
	s.Helper()
	return on(s.Env, &service[Tx]{Env: s.Env}, so, o, h)
}

func on[Tx any](e *conformance.Env[Tx], s *service[Tx], so idempotency.Options, o idemhttp.Options, h handler[Tx]) *service[Tx] {
	e.Helper()
	owners := core.OneOwner
	if o.Owner != nil {
		owners = core.ManyOwners
	}
	store, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, owners), so)
	if err != nil {
		e.Fatal(err)
	}
	operation := func(r *http.Request) string {
		switch name := r.Header.Get("X-Operation"); {
		case name != "":
			return name
		case strings.HasPrefix(r.URL.Path, "/other/"):
			return "other"
		}
		return "refund"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	}
	m, err := idemhttp.New(store, operation, o)
	if err != nil {
		e.Fatal(err)
	}
	wrapped := m.Handler(func(w http.ResponseWriter, r *http.Request, tx Tx) error {
		s.runs.Add(1)
		return h(s, w, r, tx)
	})
	mux := http.NewServeMux()
	mux.Handle("/refunds/{order}", wrapped)
	mux.Handle("/other/", wrapped)
	mux.Handle("GET /lookup", m.Lookup("refund", "other"))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&s.log, nil), slog.LevelError)
	server.Start()
	e.Cleanup(server.Close)
	s.url, s.client = server.URL, server.Client()
	return s
}

// refund is the usual handler: it writes one effect for the order, and its body differs with
// each run.
func refund[Tx any](s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := s.Effect(r.Context(), tx, r.PathValue("order")); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Location", "/refunds/"+r.PathValue("order"))
	w.WriteHeader(http.StatusCreated)
	_, err = fmt.Fprintf(w, "refunded %s at %d\x00\xff", body, time.Now().UnixNano())
	return err
}

// answer is the response that a client got.
type answer struct {
	status   int
	header   http.Header
	body     string
	replayed bool
}

func (a answer) String() string {
	return fmt.Sprintf("%d (replayed %v) %v %.300q", a.status, a.replayed, a.header, a.body)
}

// problem returns the problem type of the answer, or "" if the answer is not a problem.
func (a answer) problem() string {
	var p idemhttp.Problem
	if a.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(a.body), &p) != nil || p.Status != a.status {
		return ""
	}
	return p.Type
}

// ask sends a request. Header fields are passed in pairs. With an empty key, the request has
// no key.
func (s *service[Tx]) ask(ctx context.Context, method, path, key, body string, header ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if key != "" {
		r.Header.Set(idemclient.HeaderKey, key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), resp.Header.Get(idemclient.HeaderReplayed) == "true"}, err
}

// post refunds an order.
func (s *service[Tx]) post(order, key, body string, header ...string) answer {
	s.Helper()
	a, err := s.ask(s.Ctx, http.MethodPost, "/refunds/"+order, key, body, header...)
	if err != nil {
		s.Error(err)
	}
	return a
}

// want fails unless a is a problem of this type, or no problem if the type is "".
func (s *service[Tx]) want(what string, a answer, status int, problem string) {
	s.Helper()
	if a.status != status || a.problem() != problem || a.replayed {
		s.Errorf("%s: got %v, want %d %s", what, a, status, problem)
	}
}

// wantReplay fails unless a repeats first.
func (s *service[Tx]) wantReplay(first, a answer) {
	s.Helper()
	if first.replayed || !a.replayed {
		s.Errorf("replayed: first %v, then %v", first.replayed, a.replayed)
	}
	if a.status != first.status || a.body != first.body {
		s.Errorf("got %v, first it was %v", a, first)
	}
	for _, name := range idemhttp.DefaultHeaders() {
		if a.header.Get(name) != first.header.Get(name) {
			s.Errorf("%s is %q, first it was %q", name, a.header.Get(name), first.header.Get(name))
		}
	}
}

// wantRuns fails unless the handler ran n times since the last call.
func (s *service[Tx]) wantRuns(n int32) {
	s.Helper()
	if got := s.runs.Swap(0); got != n {
		s.Errorf("the handler ran %d times, want %d", got, n)
	}
}

func (s *service[Tx]) wantEffects(order string, n int) {
	s.Helper()
	if got := s.Effects(order); got != n {
		s.Errorf("%s has %d effects in the table, want %d", order, got, n)
	}
}

// records counts the records in the table.
func (s *service[Tx]) records() int {
	s.Helper()
	return s.Int(`SELECT COUNT(*) FROM holdfast_records`)
}

var errBoom = errors.New("boom")

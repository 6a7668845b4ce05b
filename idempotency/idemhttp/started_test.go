package idemhttp_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
)

// starter is a service whose handler starts a staged refund for the owner in the Authorization.
type starter[Tx any] struct {
	*conformance.Env[Tx]
	runner *staged.Runner[string, string, Tx]
	mux    *http.ServeMux

	mu   sync.Mutex
	call func(ctx context.Context) (string, error) // the provider's answer
	paid int
}

const where = "/refunds/status/"

func starts[Tx any](e *conformance.Env[Tx], o idemhttp.Options) *starter[Tx] {
	e.Helper()
	s := &starter[Tx]{Env: e, mux: http.NewServeMux()}
	o.Owner = func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	o.Logger = slog.New(slog.DiscardHandler)
	store, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
	if err != nil {
		e.Fatal(err)
	}
	s.runner, err = staged.New(store, staged.Workflow[string, string, Tx]{
		Name: "pay", Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], order string) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(ctx context.Context, _ string) (string, error) {
				s.mu.Lock()
				call := s.call
				s.paid++
				s.mu.Unlock()
				if call != nil {
					return call(ctx)
				}
				return "paid " + order, nil
			})
		},
	})
	if err != nil {
		e.Fatal(err)
	}
	m, err := idemhttp.New(store, idemhttp.Operation("refund"), o)
	if err != nil {
		e.Fatal(err)
	}
	if _, err := idemhttp.Cancel(m, s.runner); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("Cancel before Status: %v", err)
	}
	status, err := idemhttp.Status(m, s.runner, where)
	if err != nil {
		e.Fatal(err)
	}
	if _, err := idemhttp.Status(m, s.runner, where); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("Status twice: %v", err)
	}
	s.mux.Handle("GET "+where, status)
	cancel, err := idemhttp.Cancel(m, s.runner)
	if err != nil {
		e.Fatal(err)
	}
	s.mux.Handle("DELETE "+where, cancel)
	s.mux.Handle("GET /lookup", m.Lookup("refund"))
	s.mux.Handle("POST /refunds/{order}", m.Handler(func(w http.ResponseWriter, r *http.Request, tx Tx) error {
		order := r.PathValue("order")
		if err := e.Effect(r.Context(), tx, order); err != nil {
			return err
		}
		op := idempotency.Op{Owner: r.Header.Get("Authorization"), Key: order}
		if r.Header.Get("X-Other") != "" {
			op.Owner = "other"
		}
		started, err := s.runner.StartTx(r.Context(), tx, op, order)
		if err != nil {
			return err
		}
		if err := idemhttp.Accept(w, r, started); err != nil || r.Header.Get("X-Reject") == "" {
			return err
		}
		return idempotency.Reject("changed", "the handler has changed its mind")
	}))
	return s
}

func (s *starter[Tx]) answers(call func(ctx context.Context) (string, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = call
}

// ask serves a request of anna's, or of the owner in the header fields, without a connection of HTTP.
func (s *starter[Tx]) ask(method, path, key string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(s.Ctx, method, path, http.NoBody)
	r.Header.Set("Authorization", "anna")
	if key != "" {
		r.Header.Set(idemclient.HeaderKey, key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w
}

func (s *starter[Tx]) want(what string, w *httptest.ResponseRecorder, status int, contains string) {
	s.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), contains) {
		s.Errorf("%s: %d %s, want %d with %q", what, w.Code, w.Body, status, contains)
	}
}

// completer runs a completer whose passes are an hour apart.
func (s *starter[Tx]) completer(workers int) {
	ctx, cancel := context.WithCancel(s.Ctx)
	ended, passed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		_ = s.runner.RunCompleter(ctx, staged.RunOptions{Every: time.Hour, Workers: workers, OnPass: func(staged.Completed, error) { once.Do(func() { close(passed) }) }})
	}()
	s.Cleanup(func() { cancel(); <-ended })
	<-passed
}

// startedAccepts starts a refund: 202 with a Location, where only its owner finds it, and where the
// result is once a completer has continued it.
func startedAccepts[Tx any](e *conformance.Env[Tx]) {
	s := starts(e, idemhttp.Options{})
	first := s.ask("POST", "/refunds/a", "k1", "X-Request-Id", "req-1")
	s.want("started", first, http.StatusAccepted, `{"status":"waiting"}`)
	location := first.Header().Get("Location")
	if !strings.HasPrefix(location, where) || strings.Contains(location, "a") && len(location) != len(where)+43 || first.Header().Get("Retry-After") == "" {
		e.Errorf("%v", first.Header())
	}
	again := s.ask("POST", "/refunds/a", "k1", "X-Request-Id", "req-2")
	s.want("a duplicate", again, http.StatusAccepted, `{"status":"waiting"}`)
	if h := again.Header(); h.Get(idemclient.HeaderReplayed) != "true" || h.Get("Location") != location || h.Get(idemclient.HeaderOriginal) != "req-1" {
		e.Errorf("a duplicate: %v", h)
	}
	if h := first.Header(); h.Get(idemclient.HeaderOriginal) != "" {
		e.Errorf("the first: %v", h)
	}
	s.want("its key", s.ask("GET", "/lookup", "k1"), http.StatusAccepted, `{"status":"waiting"}`)
	s.want("its status", s.ask("GET", location, ""), http.StatusAccepted, `{"status":"waiting"}`)
	for name, w := range map[string]*httptest.ResponseRecorder{
		"another owner": s.ask("GET", location, "", "Authorization", "mallory"), "no such one": s.ask("GET", where+strings.Repeat("A", 43), ""),
		"no address": s.ask("GET", where+"x", ""), "none": s.ask("GET", where, ""),
	} {
		s.want(name, w, http.StatusNotFound, idemhttp.ProblemNotFound)
	}
	s.want("no owner", s.ask("GET", location, "", "Authorization", ""), http.StatusForbidden, idemhttp.ProblemOwner)
	if s.paid != 0 {
		e.Error("a status has executed it")
	}
	if done, err := s.runner.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	s.want("its result", s.ask("GET", location, ""), http.StatusOK, `{"status":"succeeded","result":"paid a"}`)
	s.want("its key's", s.ask("GET", "/lookup", "k1"), http.StatusOK, `"result":"paid a"`)
	again = s.ask("POST", "/refunds/a", "k1")
	s.want("a duplicate gets it", again, http.StatusOK, `"result":"paid a"`)
	if again.Header().Get(idemclient.HeaderReplayed) != "true" {
		e.Errorf("%v", again.Header())
	}
	if found, err := s.runner.Lookup(e.Ctx, idempotency.Op{Owner: "anna", Key: "a"}); err != nil || found.RequestID != "req-1" {
		e.Errorf("%+v, %v", found, err)
	}
	e.WantOnce("a")
	// A handler that rejects after Accept has started nothing. Another request starts that operation; the refused one stays refused.
	s.want("rejected", s.ask("POST", "/refunds/e", "k5", "X-Reject", "1"), http.StatusUnprocessableEntity, `"code":"changed"`)
	s.want("started by another", s.ask("POST", "/refunds/e", "k6"), http.StatusAccepted, `{"status":"waiting"}`)
	if done, err := s.runner.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	s.want("rejected still", s.ask("POST", "/refunds/e", "k5", "X-Reject", "1"), http.StatusUnprocessableEntity, `"code":"changed"`)
	// The operation of another owner, and a refusal.
	s.want("another owner's operation", s.ask("POST", "/refunds/b", "k2", "X-Other", "1"), http.StatusInternalServerError, idemhttp.ProblemInternal)
	s.answers(func(context.Context) (string, error) {
		return "", idempotency.Reject("closed", "the account is closed")
	})
	location = s.ask("POST", "/refunds/c", "k3").Header().Get("Location")
	if _, err := s.runner.Complete(e.Ctx); err != nil {
		e.Error(err)
	}
	s.want("refused", s.ask("GET", location, ""), http.StatusUnprocessableEntity, `"code":"closed"`)
	s.answers(func(context.Context) (string, error) { return "", errBoom })
	location = s.ask("POST", "/refunds/d", "k4").Header().Get("Location")
	if _, err := s.runner.Complete(e.Ctx); err != nil {
		e.Error(err)
	}
	s.want("unknown", s.ask("GET", location, ""), http.StatusAccepted, `{"status":"unknown"}`)
	if s.paid != 4 {
		e.Errorf("paid %d times", s.paid)
	}
}

// startedWaits waits for what a request has started, by the option and by what the client prefers.
func startedWaits[Tx any](e *conformance.Env[Tx]) {
	s := starts(e, idemhttp.Options{StartWait: time.Minute, MaxStartWait: time.Minute})
	s.completer(16)
	w := s.ask("POST", "/refunds/a", "k1")
	s.want("it waits", w, http.StatusOK, `{"status":"succeeded","result":"paid a"}`)
	if w.Header().Get("Location") == "" {
		e.Errorf("%v", w.Header())
	}
	free := make(chan struct{})
	s.answers(func(context.Context) (string, error) { <-free; return "paid late", nil })
	for _, wait := range []string{"wait=0", "respond-async, wait=0; x=1"} {
		w = s.ask("POST", "/refunds/b", "k2", "Prefer", wait)
		s.want("it prefers not to wait", w, http.StatusAccepted, `{"status":`)
		if w.Header().Get("Preference-Applied") != "wait=0" {
			e.Errorf("%v", w.Header())
		}
	}
	location := w.Header().Get("Location")
	s.want("its status", s.ask("GET", location, "", "Prefer", "wait=0"), http.StatusAccepted, "")
	waited := make(chan *httptest.ResponseRecorder)
	go func() { waited <- s.ask("GET", location, "", "Prefer", "wait=60") }()
	close(free)
	s.want("its status, with a wait", <-waited, http.StatusOK, `"result":"paid late"`)
	e.WantOnce("a")
	e.WantOnce("b")
}

// oneEngine makes the engines count their goroutines one after another.
var oneEngine sync.Mutex

// startedManyWait lets hundreds of requests wait, a thousand by night, for a provider that does not answer. They hold no
// connection, and no goroutine but their own and the workers'.
func startedManyWait[Tx any](e *conformance.Env[Tx]) {
	const workers = 16
	requests := 300 // many more than the pool has connections; two goroutines for each are too many
	if dbtest.Nightly() {
		requests = 1000
	}
	oneEngine.Lock()
	defer oneEngine.Unlock()
	s := starts(e, idemhttp.Options{StartWait: time.Hour})
	s.completer(workers)
	free := make(chan struct{})
	answer := sync.OnceFunc(func() { close(free) })
	e.Cleanup(answer) // before the completer's, which waits for its calls
	s.answers(func(context.Context) (string, error) { <-free; return "paid", nil })
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for i := range requests {
		all.Go(func() {
			w := s.ask("POST", fmt.Sprintf("/refunds/%d", i), fmt.Sprint("k", i))
			// So many writers at once may be more than a busy server takes. A client sends again what was
			// answered so; each key is paid once all the same.
			for w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "" && e.Ctx.Err() == nil {
				w = s.ask("POST", fmt.Sprintf("/refunds/%d", i), fmt.Sprint("k", i))
			}
			var body idemhttp.OperationStatus
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK {
				e.Errorf("%d %s", w.Code, w.Body)
			}
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	e.Eventually("all have started", func() bool {
		mu.Lock()
		ended := len(codes) // before the provider answers: a failure
		mu.Unlock()
		return ended > 0 || e.Int(`SELECT COUNT(*) FROM holdfast_staged`) == requests
	})
	// If they held connections while they wait, this would not come before the provider answers.
	e.Eventually("no connection is in use", func() bool { return e.InUse() == 0 })
	// The pool's own goroutines, and those of other tests, are few.
	if n := runtime.NumGoroutine() - before; n > requests+workers+200 {
		e.Errorf("%d goroutines for %d requests and %d workers", n, requests, workers)
	}
	answer()
	all.Wait()
	if codes[http.StatusOK] != requests {
		e.Errorf("%v", codes)
	}
	if s.paid != requests {
		e.Errorf("paid %d times", s.paid)
	}
}

func TestStartedManyWait(t *testing.T) { //nolint:paralleltest // it counts goroutines
	conformance.Run(t, conformance.SQL(), startedManyWait)
}

// TestDiscardedIsNoError checks that a handler's 400 is a separate outcome in spans and metrics.
func TestDiscardedIsNoError(t *testing.T) {
	t.Parallel()
	told := &tracetest.Recorder{}
	conformance.Run(t, conformance.Only(conformance.SQL(), dbtest.SQLite), func(e *conformance.Env[*sql.Tx]) {
		s := start(e, idempotency.Options{}, idemhttp.Options{}, func(_ *service[*sql.Tx], w http.ResponseWriter, _ *http.Request, _ *sql.Tx) error {
			w.WriteHeader(http.StatusBadRequest)
			return nil
		})
		if a := s.post("a", "k", ""); a.status != http.StatusBadRequest {
			e.Errorf("%v", a)
		}
		if got := told.Outcomes("idempotency.do"); !slices.Equal(got, []string{"discarded"}) {
			e.Errorf("%v", got)
		}
	}, holdfast.Options{Tracers: []holdfast.Tracer{told}})
}

package idemhttp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// rejection checks that a refusal which the handler marks as final rolls back its writes and
// is replayed, with the handler's own answer or with a problem.
func rejection[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if err := s.Effect(r.Context(), tx, r.PathValue("order")); err != nil {
			return err
		}
		switch r.PathValue("order") {
		case "lie": // a router does this for a handler that wrote nothing
			w.Header().Set("ETag", `"lie"`)
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte("done"))
		case "own":
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = fmt.Fprintf(w, "declined at %d", time.Now().UnixNano())
		}
		return idempotency.Reject("over_refund", "more than was paid")
	})
	for order, status := range map[string]int{
		"own": http.StatusPaymentRequired, "problem": http.StatusUnprocessableEntity, "lie": http.StatusUnprocessableEntity,
	} {
		first := s.post(order, order, "1")
		if first.status != status {
			e.Errorf("got %v", first)
		}
		s.wantReplay(first, s.post(order, order, "1"))
		other := s.replica(idempotency.Options{}, idemhttp.Options{}, refund[Tx])
		other.wantReplay(first, other.post(order, order, "1"))
		s.want("mismatch", s.post(order, order, "2"), http.StatusUnprocessableEntity, idemhttp.ProblemMismatch)
		s.wantEffects(order, 0)
		if order != "own" && (first.problem() != idemhttp.ProblemRejected || !strings.Contains(first.body, `"code":"over_refund"`) || first.header.Get("ETag") != "") {
			e.Errorf("got %v", first)
		}
	}
	s.wantRuns(3)
}

// failures checks that an error of the handler is not stored as a result, and that its text
// appears only in the log.
func failures[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		if err := s.Effect(r.Context(), tx, r.PathValue("order")); err != nil {
			return err
		}
		switch r.PathValue("order") {
		case "own":
			http.Error(w, "not today", http.StatusServiceUnavailable)
		case "lie":
			w.WriteHeader(http.StatusCreated)
		case "inner":
			return fmt.Errorf("an operation of the handler's: %w", idempotency.ErrMismatch)
		case "unknown":
			return fmt.Errorf("an operation of the handler's: %w", holdfast.ErrUnknown)
		}
		return errBoom
	})
	for order, want := range map[string]struct {
		status  int
		problem string
	}{
		"none":    {http.StatusInternalServerError, idemhttp.ProblemInternal},
		"own":     {http.StatusServiceUnavailable, ""},
		"lie":     {http.StatusInternalServerError, idemhttp.ProblemInternal},
		"inner":   {http.StatusInternalServerError, idemhttp.ProblemInternal},
		"unknown": {http.StatusServiceUnavailable, idemhttp.ProblemUnknown},
	} {
		for range 2 {
			a := s.post(order, order, "1")
			s.want(order, a, want.status, want.problem)
			if strings.Contains(a.body, "boom") {
				e.Errorf("the error was sent: %v", a)
			}
		}
		s.wantRuns(2)
		s.wantEffects(order, 0)
	}
	if !strings.Contains(s.log.String(), "boom") {
		e.Error("the error is not in the log")
	}
	if n := s.records(); n != 0 {
		e.Errorf("%d records were kept", n)
	}
}

// runsAgain checks that when the engine requires it, the handler runs again with the whole
// body, a new ResponseWriter and nothing left from the earlier run.
func runsAgain[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{Attempts: 5}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		w.Header().Add("X-Run", "x")
		r.Header.Add("X-Run", "x")
		w.Header().Add("X-Seen", strings.Join(r.Header["X-Run"], ","))
		err := refund(s, w, r, tx)
		if n := s.runs.Load(); n < 3 || r.PathValue("order") == "always" {
			return fmt.Errorf("the engine said so: %w", busy(s.Env))
		}
		return err
	})
	a := s.post("A-17", "k", "100")
	if a.status != http.StatusCreated || !strings.Contains(a.body, "refunded 100 at") ||
		len(a.header["X-Run"]) != 1 || a.header.Get("X-Seen") != "x" {
		e.Errorf("got %v", a)
	}
	s.wantReplay(a, s.post("A-17", "k", "100"))
	s.wantRuns(3)
	e.WantOnce("A-17")

	a = s.post("always", "always", "100")
	s.want("never done", a, http.StatusServiceUnavailable, idemhttp.ProblemUnavailable)
	if a.header.Get("Retry-After") == "" {
		e.Error("no Retry-After")
	}
	s.wantRuns(5)
	s.wantEffects("always", 0)
}

// busy returns an error of the engine after which the whole transaction must run again.
func busy[Tx any](e *conformance.Env[Tx]) error {
	statement := `SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213`
	switch e.Engine {
	case dbtest.Postgres:
		statement = `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`
	case dbtest.SQLite:
		// The handler's own transaction has the write lock.
		statement = `BEGIN IMMEDIATE`
	case dbtest.TiDB, dbtest.Vitess: // they do not parse SIGNAL
		return &mysql.MySQLError{Number: 1213, SQLState: [5]byte([]byte("40001"))}
	}
	conn, err := e.SQL.Conn(e.Ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if e.Engine == dbtest.SQLite {
		if _, err := conn.ExecContext(e.Ctx, `PRAGMA busy_timeout = 0`); err != nil {
			return err
		}
	}
	if _, err = conn.ExecContext(e.Ctx, statement); !e.DB.Retryable(err) {
		e.Errorf("%s: got %v, want an error that asks for another run", statement, err)
	}
	return err
}

// swallowed checks that when the handler ignores an error that ended its transaction, there is
// no effect and the client gets no success.
func swallowed[Tx any](e *conformance.Env[Tx]) {
	ends := `ROLLBACK`
	if e.Engine == dbtest.Postgres {
		ends = `INSERT INTO no_such_table VALUES (1)` // PostgreSQL refuses every later statement
	}
	s := start(e, idempotency.Options{}, idemhttp.Options{}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		_, _ = s.Exec(r.Context(), tx, ends)
		_ = refund(s, w, r, tx)
		w.WriteHeader(http.StatusCreated)
		return nil
	})
	for range 2 {
		s.want("swallowed", s.post("a", "k", "1"), http.StatusInternalServerError, idemhttp.ProblemInternal)
		s.wantEffects("a", 0)
	}
	s.wantRuns(2)
}

// endsItself has handlers that commit their transaction themselves. What they did stands, so the answer does not say that nothing
// was done, whatever the handler would have answered, and the key does not do it again.
func endsItself[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{Unkeyed: idemhttp.ServeUnkeyed}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		order := r.PathValue("order")
		if err := s.Effect(r.Context(), tx, order); err != nil {
			return err
		}
		_ = s.End(r.Context(), tx, true)
		w.WriteHeader(map[string]int{"created": http.StatusCreated, "conflict": http.StatusConflict}[strings.Fields(order)[0]])
		return nil
	})
	for _, order := range []string{"created", "conflict"} {
		first := s.post(order, order, "1")
		stands := e.Effects(order) == 1
		if lies := strings.Contains(first.body, "did nothing") || first.status == http.StatusCreated; stands && lies {
			e.Errorf("%s: %v", order, first)
		}
		if !stands && e.Engine != dbtest.SQLite { // whose fence refuses the COMMIT
			e.Errorf("%s: nothing stands", order)
		}
		if e.Engine == dbtest.Postgres && first.status != http.StatusInternalServerError {
			e.Errorf("%s: %v", order, first)
		}
		again := s.post(order, order, "1")
		if stands {
			s.wantEffects(order, 1)
		}
		if stands && again.status != http.StatusServiceUnavailable {
			e.Errorf("%s, again: %v", order, again)
		}
	}
	if a := s.post("created%20unkeyed", "", "1"); e.Effects("created unkeyed") == 1 && !strings.Contains(a.body, "Look for its effect") {
		e.Errorf("without a key: %v", a)
	}
}

// parsedBefore has something read the body before the middleware. It is not known what was asked for, so nothing is done.
func parsedBefore[Tx any](e *conformance.Env[Tx]) {
	m, err := idemhttp.New(e.Store(idempotency.Options{}), idemhttp.Operation("refund"), idemhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.Fatal(err)
	}
	h := m.Handler(func(_ http.ResponseWriter, r *http.Request, tx Tx) error { return e.Effect(r.Context(), tx, "a") })
	for name, read := range map[string]func(r *http.Request){
		"ParseForm":          func(r *http.Request) { _ = r.ParseForm() },
		"ParseMultipartForm": func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) },
		"all":                func(r *http.Request) { _, _ = io.ReadAll(r.Body) },
		"chunks":             func(r *http.Request) { r.ContentLength = -1; _ = r.ParseForm() },
	} {
		r := httptest.NewRequestWithContext(e.Ctx, http.MethodPost, "/", strings.NewReader("cents=100"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set(idemclient.HeaderKey, name)
		read(r)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), idemhttp.ProblemInternal) {
			e.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if n := e.Effects("a"); n != 0 {
		e.Errorf("%d effects", n)
	}
}

// ranOnce checks a router's middleware that can run its handler only once. When the engine
// requires another run, this is detected, instead of committing nothing and reporting success.
func ranOnce[Tx any](e *conformance.Env[Tx]) {
	m, err := idemhttp.New(e.Store(idempotency.Options{}), idemhttp.Operation("refund"), idemhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.Fatal(err)
	}
	s := &service[Tx]{Env: e}
	h := m.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if s.runs.Add(1) == 1 {
			_, _ = idemhttp.Tx[Tx](r.Context())
			idemhttp.Fail(r.Context(), busy(e))
		}
	}))
	if w := send(e.T, h, "/", "k"); w.Code != http.StatusInternalServerError {
		e.Errorf("got %d", w.Code)
	}
	s.wantRuns(2)
	if n := s.records(); n != 0 {
		e.Errorf("%d records", n)
	}
}

// outer checks that the handler can change header fields set by an outer middleware, and that
// a replay carries the fields of the replaying request.
func outer[Tx any](e *conformance.Env[Tx]) {
	m, err := idemhttp.New(e.Store(idempotency.Options{}), idemhttp.Operation("refund"), idemhttp.Options{})
	if err != nil {
		e.Fatal(err)
	}
	inner := m.Handler(func(w http.ResponseWriter, _ *http.Request, _ Tx) error {
		w.Header().Del("X-Powered-By")
		w.Header().Add("Vary", "Accept")
		w.Header().Add("X-Trace", "seen "+w.Header().Get("X-Trace"))
		return nil
	})
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("X-Powered-By", "outer")
		w.Header().Set("Vary", "Origin")
		w.Header().Set("X-Trace", strconv.Itoa(n))
		inner.ServeHTTP(w, r)
	})
	first, second := send(e.T, h, "/", "k").Header(), send(e.T, h, "/", "k").Header()
	if got := fmt.Sprint(first["X-Powered-By"], first["Vary"], first["X-Trace"]); got != "[] [Origin Accept] [1 seen 1]" {
		e.Errorf("first %s", got)
	}
	if got := fmt.Sprint(second["X-Powered-By"], second["Vary"], second["X-Trace"]); got != "[outer] [Origin Accept] [2]" {
		e.Errorf("replayed %s", got)
	}
}

// wrapFinds checks that a plain handler finds its transaction, fails and rejects through its
// context, and that use of the wrong context is reported.
func wrapFinds[Tx any](e *conformance.Env[Tx]) {
	store := e.Store(idempotency.Options{})
	m, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.Fatal(err)
	}
	server := httptest.NewServer(m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, ok := idemhttp.Tx[Tx](r.Context())
		if _, other := idemhttp.Tx[int](r.Context()); other {
			e.Error("found a transaction of another type")
		}
		if !ok {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		if err := e.Effect(r.Context(), tx, r.URL.Path); err != nil {
			idemhttp.Fail(r.Context(), err)
		}
		switch r.URL.Path {
		case "/fail":
			idemhttp.Fail(r.Context(), errBoom)
			idemhttp.Fail(r.Context(), idempotency.Reject("second", "does not count"))
		case "/reject":
			idemhttp.Fail(r.Context(), idempotency.Reject("first", "counts"))
		case "/silent":
			wantPanic(e.T, "Fail without an error", func() { idemhttp.Fail(r.Context(), nil) })
		}
	})))
	e.Cleanup(server.Close)
	s := &service[Tx]{Env: e, url: server.URL, client: server.Client()}
	for path, want := range map[string]struct{ status, effects int }{
		"/fail": {http.StatusInternalServerError, 0}, "/reject": {http.StatusUnprocessableEntity, 0}, "/silent": {http.StatusOK, 1},
	} {
		a, err := s.ask(s.Ctx, "POST", path, path, "")
		if err != nil || a.status != want.status {
			e.Errorf("%s: %v, %v", path, a, err)
		}
		s.wantEffects(path, want.effects)
	}
	if a, err := s.ask(s.Ctx, "GET", "/", "", ""); err != nil || a.status != http.StatusTeapot {
		e.Errorf("a method that passes through: %v, %v", a, err)
	}
	wantPanic(e.T, "Fail with another context", func() { idemhttp.Fail(e.Ctx, errBoom) })
}

func wantPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s was overlooked", what)
		}
	}()
	f()
}

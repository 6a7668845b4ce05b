package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

// world is one driver mode on one engine. Its pool uses the proxy; SQL, for the audit and for
// other sessions, does not.
type world[Tx any] struct {
	*conformance.Env[Tx]
	proxy *faultproxy.Proxy
	usual bool         // the mode that most programs use
	ran   atomic.Int32 // how often a function of ask ran
}

// everyMode runs a rule on each server and in each mode of its drivers. SQLite has no connection
// that could break.
func everyMode(t *testing.T, std func(*world[*sql.Tx]), native func(*world[pgx.Tx]), x func(*world[*sqlx.Tx])) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return
		}
		base := conformance.New(t, conformance.SQL(), engine)
		inMode(t, base, conformance.SQLX(), "", x)
		inMode(t, base, conformance.Connected(), "", std)
		for _, param := range modes(engine) {
			inMode(t, base, conformance.SQL(), param, std)
			if engine == dbtest.Postgres {
				inMode(t, base, conformance.Pgx(), param, native)
			}
		}
	})
}

func modes(engine dbtest.Engine) []string {
	all := []string{"interpolateParams=false", "interpolateParams=true"}
	if engine == dbtest.Postgres {
		all = nil
		for _, mode := range conformance.ExecModes() {
			all = append(all, "default_query_exec_mode="+mode)
		}
	}
	if testing.Short() {
		return all[:1]
	}
	return all
}

func inMode[Tx any](t *testing.T, base *conformance.Env[*sql.Tx], h conformance.Handle[Tx], param string, rule func(*world[Tx])) {
	t.Helper()
	if param != "" {
		h = conformance.With(h, param, base.Engine)
	}
	_, mode, _ := strings.Cut(param, "=")
	if base.Engine != dbtest.Postgres && mode != "" {
		mode = param
	}
	kind, _, _ := strings.Cut(h.Name, "?")
	name := strings.Trim(kind+" "+mode, "? ")
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		w := open(t, base, h)
		w.usual = param == modes(base.Engine)[0]
		rule(w)
	})
}

// open opens a pool through a new proxy on the database of base.
func open[Tx any](t *testing.T, base *conformance.Env[*sql.Tx], h conformance.Handle[Tx]) *world[Tx] {
	t.Helper()
	target, behind := through(t, base.DSN)
	proxy, err := faultproxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	ctx, cancel := context.WithTimeout(t.Context(), conformance.Timeout) // starts when the test's turn comes
	t.Cleanup(cancel)
	e := &conformance.Env[Tx]{T: t, Engine: base.Engine, DSN: behind(proxy.Addr()), Handle: h, SQL: base.SQL, Ctx: ctx}
	e.Pool = h.Open(t, e.DSN)
	t.Cleanup(func() {
		proxy.CutAll() // a pool's Close would wait for a silent connection
		e.Close()      // close first: the pool may fail to say goodbye
	})
	return &world[Tx]{Env: e, proxy: proxy}
}

// again returns w for a subtest, with another pool and another proxy.
func again[Tx any](t *testing.T, w *world[Tx]) *world[Tx] {
	t.Helper()
	base := &conformance.Env[*sql.Tx]{T: t, Engine: w.Engine, DSN: w.DSN, SQL: w.SQL, Ctx: w.Ctx}
	return open(t, base, w.Handle)
}

var address = regexp.MustCompile(`@(tcp\()?([^/?()]+)`)

// through finds the server's address in a URL, and returns a function that replaces it.
func through(t *testing.T, url string) (target string, behind func(addr string) string) {
	t.Helper()
	at := address.FindStringSubmatchIndex(url)
	if at == nil {
		t.Fatal("the database's URL has no host:port")
	}
	target = url[at[4]:at[5]]
	if !strings.Contains(target, ":") {
		t.Fatal("the database's URL has no port")
	}
	return target, func(addr string) string { return url[:at[4]] + addr + url[at[5]:] }
}

// ask is a way to request the effect of a key.
type ask struct {
	name string
	do   func(ctx context.Context, key string) (idempotency.Outcome, error)
}

// Refund is a row of the table refunds.
type Refund struct {
	No     string `db:"refund_no"`
	Amount int64  `db:"amount"`
}

// asks returns Do and Table.Do, each waiting at most wait.
func (w *world[Tx]) asks(wait time.Duration) []ask {
	w.Helper()
	table, err := businessrow.New[Refund](w.Ctx, w.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
		businessrow.Options{Compare: []string{"amount"}, Wait: wait})
	if err != nil {
		w.Fatal(err)
	}
	return []ask{w.record(wait, nil), {"row", func(ctx context.Context, key string) (idempotency.Outcome, error) {
		r, err := table.Do(ctx, Refund{key, 100}, func(ctx context.Context, tx Tx) error { return w.effect(ctx, tx, key) })
		return r.Outcome, err
	}}}
}

// record returns Do in a new store, as another process has; more, if not nil, runs after the
// effect.
func (w *world[Tx]) record(wait time.Duration, more func(ctx context.Context, tx Tx) error) ask {
	w.Helper()
	store := w.Store(idempotency.Options{Wait: wait})
	return ask{"record", func(ctx context.Context, key string) (idempotency.Outcome, error) {
		r, err := idempotency.Do(ctx, store, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			err := w.effect(ctx, tx, key)
			if err == nil && more != nil {
				err = more(ctx, tx)
			}
			return "done", err
		})
		if err == nil && r.Value != "done" {
			err = errors.New("the result is " + r.Value)
		}
		return r.Outcome, err
	}}
}

func (w *world[Tx]) effect(ctx context.Context, tx Tx, key string) error {
	w.ran.Add(1)
	return w.Effect(ctx, tx, key)
}

// key returns a key that only this test uses.
func (w *world[Tx]) key(what string) string { return w.Name() + " " + what }

// want asks once more and fails unless the answer is outcome and there is one effect.
func (w *world[Tx]) want(a ask, key string, outcome idempotency.Outcome) {
	w.Helper()
	if got, err := a.do(w.Ctx, key); err != nil || got != outcome {
		w.Errorf("%s: asked again: %v, %v; want %v", a.name, got, err, outcome)
	}
	w.WantOnce(key)
}

// insist asks until there is an answer. It fails if an error other than "unknown" left an
// effect or blames the caller for a lost connection, or if there is not exactly one effect at the
// end.
func (w *world[Tx]) insist(a ask, key string) {
	w.Helper()
	for range 2 * stale { // each may meet a dead connection
		before := w.Effects(key)
		_, err := a.do(w.Ctx, key)
		if err == nil {
			break
		}
		if n := w.Effects(key); n != before && !errors.Is(err, holdfast.ErrUnknown) {
			w.Errorf("%s: %d effects, then %d after an error that is definite: %v", key, before, n, err)
		}
		if errors.Is(err, holdfast.ErrRowsOpen) {
			w.Errorf("%s: no rows were left open: %v", key, err)
		}
	}
	w.WantOnce(key)
}

// within fails if start is longer ago than bound plus the slack.
func (w *world[Tx]) within(start time.Time, bound time.Duration) {
	w.Helper()
	if took := time.Since(start); took > bound+dbtest.Slack {
		w.Errorf("it took %v, the bound is %v", took, bound)
	}
}

// struck fails unless the fault has struck: otherwise the test would show nothing.
func (w *world[Tx]) struck(f *faultproxy.Fault, err error) {
	w.Helper()
	if !f.Fired() {
		w.Fatalf("the fault did not strike; the call said: %v", err)
	}
}

// bare runs the effect in the caller's transaction, without Holdfast.
func (w *world[Tx]) bare(key string) error {
	tx, err := w.Begin(w.Ctx, sql.LevelDefault)
	if err != nil {
		return err
	}
	if err := w.Effect(w.Ctx, tx, key); err != nil {
		return errors.Join(err, w.End(w.Ctx, tx, false))
	}
	return w.End(w.Ctx, tx, true)
}

// bareUnder repeats bare until the fault has struck: connections may be stale.
func (w *world[Tx]) bareUnder(f *faultproxy.Fault, key string) (err error) {
	w.Helper()
	for n := 0; n < 10 && !f.Fired(); n++ {
		err = w.bare(key)
	}
	w.struck(f, err)
	return err
}

// unknown fails unless err is the typed "unknown" error.
func (w *world[Tx]) unknown(what string, err error) {
	w.Helper()
	var typed *holdfast.UnknownError
	if !errors.Is(err, holdfast.ErrUnknown) || !errors.As(err, &typed) {
		w.Errorf("%s: got %v, want ErrUnknown", what, err)
	}
}

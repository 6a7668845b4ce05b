package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPipelined checks that on a native pgx pool, a call with a new key takes as many round
// trips as a bare transaction, in each of pgx's query modes.
func TestPipelined(t *testing.T) { eachMode(t, pipelined) }

// TestPipelinedDoTx checks that on a native pgx pool, a call in the caller's transaction adds two round trips, in each of
// pgx's query modes.
func TestPipelinedDoTx(t *testing.T) { eachMode(t, pipelinedDoTx) }

// eachMode runs test in each of pgx's query modes. sent returns the statements since it returned the last time: those
// with a plus travelled with another one.
func eachMode(t *testing.T, test func(e *conformance.Env[pgx.Tx], sent func() []string)) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		if engine != dbtest.Postgres {
			continue // only pgx has native pools
		}
		for _, mode := range conformance.ExecModes() {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var seen []string
				e := conformance.New(t, conformance.With(conformance.Pgx(), "default_query_exec_mode="+mode, engine), engine,
					holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
						mu.Lock()
						defer mu.Unlock()
						if s.Name == "" { // the effect
							return
						}
						if s.Duration == 0 {
							s.Name = "+" + s.Name
						}
						seen = append(seen, s.Name)
					}}})
				test(e, func() []string {
					mu.Lock()
					defer mu.Unlock()
					was := seen
					seen = nil
					return was
				})
			})
		}
	}
}

func pipelinedDoTx(e *conformance.Env[pgx.Tx], sent func() []string) {
	plain, limited := e.Store(idempotency.Options{}), e.Store(idempotency.Options{MaxRecords: 100, Namespace: "limited"})
	expiring := e.Store(idempotency.Options{KeyTTL: time.Hour, Namespace: "expiring"})
	call := func(s *idempotency.Store[pgx.Tx], tx pgx.Tx, key string, fn func() error) error {
		_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op(key), func(ctx context.Context, tx pgx.Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			return "", fn()
		})
		return err
	}
	done := func() error { return nil }
	reject := func() error { return idempotency.Reject("no", "never") }
	for _, c := range []struct {
		s    *idempotency.Store[pgx.Tx]
		key  string
		fn   func() error
		want []string
	}{
		{plain, "new", done, []string{"records.claim", "+savepoint", "+release", "records.finish"}},
		{plain, "new", done, []string{"records.claim", "+savepoint", "+release", "records.lock"}},
		{plain, "rejected", reject, []string{"records.claim", "+savepoint", "rollback to", "+release", "records.finish"}},
		{limited, "counted", done, []string{"records.claim", "+savepoint", "records.count", "+release", "records.finish"}},
		{expiring, "expires", done, []string{"records.claim", "+savepoint", "+release", "records.finish"}},
		{expiring, "expires", done, []string{
			"records.claim", "+savepoint", "+release", "records.lock", "remember", "set", "records.renew", "records.claim", "unset",
			"savepoint", "+release", "records.finish",
		}},
	} {
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		e.Check(err)
		sent()
		if err := call(c.s, tx, c.key, c.fn); err != nil && !errors.As(err, new(*idempotency.Rejection)) {
			e.Error(err)
		}
		if got := sent(); !slices.Equal(got, c.want) {
			e.Errorf("%s: sent %v, not %v", c.key, got, c.want)
		}
		e.Check(tx.Commit(e.Ctx))
		e.Expire("key_expires_at", "expires")
	}
}

func pipelined(e *conformance.Env[pgx.Tx], sent func() []string) {
	s := e.Store(idempotency.Options{})
	var kept pgx.Tx
	do := func(key string, harm func(tx pgx.Tx) error) error {
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(key), func(ctx context.Context, tx pgx.Tx) (string, error) {
			kept = tx
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			if harm != nil {
				return "", harm(tx)
			}
			return "done", nil
		})
		return err
	}
	for i := range 9 {
		if err := do(fmt.Sprint(i), nil); err != nil {
			e.Fatal(err)
		}
	}
	sent()
	if err := do("key", nil); err != nil {
		e.Fatal(err)
	}
	if got := sent(); !slices.Equal(got, []string{"+begin", "records.claim", "records.finish", "+commit"}) {
		e.Errorf("sent %v", got)
	}
	e.WantOnce("key")

	// The transaction has ended, and another call may be using its connection.
	_, execError := kept.Exec(e.Ctx, `SELECT 1`)
	rows, queryError := kept.Query(e.Ctx, `SELECT 1`)
	rows.Close()
	_, beginError := kept.Begin(e.Ctx)
	_, copyError := kept.CopyFrom(e.Ctx, pgx.Identifier{"effects"}, []string{"k"}, pgx.CopyFromRows(nil))
	_, prepareError := kept.Prepare(e.Ctx, "late", `SELECT 1`)
	b := &pgx.Batch{}
	b.Queue(`SELECT 1`)
	var one int
	for what, err := range map[string]error{
		"Exec": execError, "Query": queryError, "Begin": beginError, "CopyFrom": copyError, "Prepare": prepareError,
		"QueryRow": kept.QueryRow(e.Ctx, `SELECT 1`).Scan(&one), "SendBatch": kept.SendBatch(e.Ctx, b).Close(),
		"Commit": kept.Commit(e.Ctx), "Rollback": kept.Rollback(e.Ctx),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			e.Errorf("%s after the end: %v", what, err)
		}
	}

	// If the transaction at the end is not the one that wrote the record, nothing commits.
	for what, harm := range map[string]func(tx pgx.Tx) error{
		"swallows an error": func(tx pgx.Tx) error {
			_, _ = tx.Exec(e.Ctx, `SELECT 1 / 0`)
			return nil
		},
		"rolls back": func(tx pgx.Tx) error { return tx.Rollback(e.Ctx) },
		"begins another": func(tx pgx.Tx) error {
			_, err := tx.Exec(e.Ctx, `ROLLBACK`)
			if err == nil {
				_, err = tx.Exec(e.Ctx, `BEGIN`)
			}
			return errors.Join(err, e.Effect(e.Ctx, tx, "begins another"))
		},
	} {
		if err := do(what, harm); !errors.Is(err, holdfast.ErrTxLost) {
			e.Errorf("a function that %s: %v", what, err)
		}
		if n := e.Effects(what); n != 0 {
			e.Errorf("a function that %s: %d effects", what, n)
		}
		if err := do(what, nil); err != nil {
			e.Errorf("after a function that %s: %v", what, err)
		}
	}

	// A key that already has a record is still detected.
	if err := do("key", nil); err != nil {
		e.Error(err)
	}
	e.WantOnce("key")
}

// TestManySavepoints nests more calls in one transaction than savepoints may travel. It does not run beside other tests, whose calls have
// savepoints, too.
func TestManySavepoints(t *testing.T) { //nolint:paralleltest // see above
	for _, engine := range dbtest.Engines() {
		if engine != dbtest.Postgres {
			continue // only pgx has native pools
		}
		var alone atomic.Int32
		e := conformance.New(t, conformance.Pgx(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if s.Name == "savepoint" && s.Duration > 0 {
				alone.Add(1)
			}
		}}})
		s := e.Store(idempotency.Options{})
		tx, err := e.Begin(e.Ctx, sql.LevelDefault)
		e.Check(err)
		var nest func(n int) error
		nest = func(n int) error {
			_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op(fmt.Sprint(n)), func(ctx context.Context, tx pgx.Tx) (string, error) {
				if err := e.Effect(ctx, tx, fmt.Sprint(n)); err != nil || n == 35 {
					return "", err
				}
				if err := nest(n + 1); err != nil && !errors.As(err, new(*idempotency.Rejection)) {
					return "", err
				}
				if n == 10 || n == 33 {
					return "", idempotency.Reject("no", "never")
				}
				return "", nil
			})
			return err
		}
		e.Check(nest(0))
		e.Check(tx.Commit(e.Ctx))
		for n := range 36 {
			want := 1
			if n >= 10 {
				want = 0
			}
			if got := e.Effects(fmt.Sprint(n)); got != want {
				t.Errorf("%d: %d effects, not %d", n, got, want)
			}
		}
		if n := alone.Load(); n < 4 || n == 36 {
			t.Errorf("%d savepoints travelled with no other statement", n)
		}
	}
}

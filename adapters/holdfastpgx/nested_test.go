package holdfastpgx_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
)

// embedded is a transaction type that embeds pgx.Tx, as programs define one, for example to
// trace it.
type embedded struct{ pgx.Tx }

// TestPseudoNested checks that every call that joins a transaction refuses a pseudo-nested one
// by name and leaves it unchanged. A rollback of a pseudo-nested transaction is a rollback to
// a savepoint, so the outer COMMIT would store what a guard has refused.
func TestPseudoNested(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Pgx(), func(e *conformance.Env[pgx.Tx]) {
		e.Must(`CREATE TABLE refund (refund_no text PRIMARY KEY, amount bigint NOT NULL)`)
		joins := joinsOf(e)
		// Each way to join, on each transaction that is not the outer one.
		for form, begin := range nestedForms(e) {
			for what, join := range joins {
				begin(func(nested pgx.Tx) {
					err := join(nested)
					if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "pseudo-nested") {
						e.Errorf("%s in %s: %v", what, form, err)
					}
					if _, err := nested.Exec(e.Ctx, `SELECT 1`); err != nil {
						e.Errorf("%s in %s did not leave it alone: %v", what, form, err)
					}
				})
			}
		}
		// The outer transaction is accepted, also when the program has wrapped it.
		outer, err := e.Begin(e.Ctx, 0)
		if err != nil {
			e.Fatal(err)
		}
		defer func() { _ = outer.Rollback(e.Ctx) }()
		for what, join := range joins {
			for form, tx := range map[string]pgx.Tx{"the outer one": outer, "a wrapper of it": embedded{outer}} {
				if err := join(tx); errors.Is(err, holdfast.ErrInvalid) {
					e.Errorf("%s in %s: %v", what, form, err)
				}
			}
		}
	})
}

// joinsOf returns the calls that join a caller's transaction.
func joinsOf(e *conformance.Env[pgx.Tx]) map[string]func(tx pgx.Tx) error {
	e.Helper()
	s := e.Store(idempotency.Options{})
	l, err := sqllock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = l.Close(context.WithoutCancel(e.Ctx)) })
	lease, err := l.Acquire(e.Ctx, "a")
	if err != nil {
		e.Fatal(err)
	}
	type refund struct {
		No     string `db:"refund_no"`
		Amount int64  `db:"amount"`
	}
	rows, err := businessrow.New[refund](e.Ctx, e.DB, holdfast.TableSpec{Table: "refund", Key: []string{"refund_no"}})
	if err != nil {
		e.Fatal(err)
	}
	register, err := register.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	rowLocks := e.RowLocker()
	return map[string]func(tx pgx.Tx) error{
		"Guard":      func(tx pgx.Tx) error { return l.Guard(e.Ctx, tx, lease.Term()) },
		"LockTx":     func(tx pgx.Tx) error { return rowLocks.LockTx(e.Ctx, tx, "key", holdfast.NoWait) },
		"ClaimTx":    func(tx pgx.Tx) error { _, err := rows.ClaimTx(e.Ctx, tx, refund{"a", 1}); return err },
		"ClaimAllTx": func(tx pgx.Tx) error { _, err := rows.ClaimAllTx(e.Ctx, tx, []refund{{"b", 1}}); return err },
		"CreateTx":   func(tx pgx.Tx) error { _, err := register.CreateTx(e.Ctx, tx, "r", nil); return err },
		"DoTx": func(tx pgx.Tx) error {
			_, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op("a"), func(context.Context, pgx.Tx) (string, error) { return "", nil })
			return err
		},
	}
}

// nestedForms returns functions that each begin a pseudo-nested transaction, pass it to a
// function and roll everything back.
func nestedForms(e *conformance.Env[pgx.Tx]) map[string]func(func(nested pgx.Tx)) {
	s, undo := e.Store(idempotency.Options{}), errors.New("undo")
	within := func(outer pgx.Tx, use func(nested pgx.Tx)) {
		nested, err := outer.Begin(e.Ctx)
		if err != nil {
			e.Fatal(err)
		}
		use(nested)
	}
	caller := func(use func(outer pgx.Tx)) {
		outer, err := e.Begin(e.Ctx, 0)
		if err != nil {
			e.Fatal(err)
		}
		defer func() { _ = outer.Rollback(e.Ctx) }()
		use(outer)
	}
	return map[string]func(func(nested pgx.Tx)){
		"a pool's transaction": func(use func(pgx.Tx)) {
			caller(func(outer pgx.Tx) { within(outer, use) })
		},
		"one that is nested itself": func(use func(pgx.Tx)) {
			caller(func(outer pgx.Tx) { within(outer, func(nested pgx.Tx) { within(nested, use) }) })
		},
		"a wrapper": func(use func(pgx.Tx)) {
			caller(func(outer pgx.Tx) { within(outer, func(nested pgx.Tx) { use(&embedded{embedded{nested}}) }) })
		},
		"InTx": func(use func(pgx.Tx)) {
			if err := e.DB.InTx(e.Ctx, func(_ context.Context, tx pgx.Tx) error { within(tx, use); return undo }); !errors.Is(err, undo) {
				e.Error(err)
			}
		},
		"Do": func(use func(pgx.Tx)) {
			_, err := idempotency.Do(e.Ctx, s, conformance.Op("outer"), func(_ context.Context, tx pgx.Tx) (string, error) { within(tx, use); return "", undo })
			if !errors.Is(err, undo) {
				e.Error(err)
			}
		},
	}
}

// TestPseudoNestedGuard checks that a guard in a savepoint is refused, and that the outer
// COMMIT stores nothing after a guard in the outer transaction has failed.
func TestPseudoNestedGuard(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Pgx(), func(e *conformance.Env[pgx.Tx]) {
		l, err := sqllock.New(e.Ctx, e.DB)
		if err != nil {
			e.Fatal(err)
		}
		lease, err := l.Acquire(e.Ctx, "a")
		if err != nil {
			e.Fatal(err)
		}
		if err := errors.Join(lease.Release(e.Ctx), l.Close(e.Ctx)); err != nil {
			e.Fatal(err)
		}
		outer, err := e.Begin(e.Ctx, 0)
		if err != nil {
			e.Fatal(err)
		}
		defer func() { _ = outer.Rollback(e.Ctx) }()
		if err := e.Effect(e.Ctx, outer, "stale"); err != nil {
			e.Fatal(err)
		}
		nested, err := outer.Begin(e.Ctx)
		if err != nil {
			e.Fatal(err)
		}
		if err := l.Guard(e.Ctx, nested, lease.Term()); !errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, sqllock.ErrLost) {
			e.Errorf("the guard in a savepoint: %v", err)
		}
		// A correct program passes the outer transaction.
		if err := l.Guard(e.Ctx, outer, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("the guard in the outer transaction: %v", err)
		}
		if err := outer.Commit(e.Ctx); err == nil || e.Effects("stale") != 0 {
			e.Errorf("the outer COMMIT: %v, and %d stale effects", err, e.Effects("stale"))
		}
	})
}

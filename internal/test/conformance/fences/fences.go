// Package fences contains the suite of tables whose writes the database fences.
package fences

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// env is one test, with the helpers of this suite.
type env[Tx any] struct{ conformance.Env[Tx] }

// Suite is the suite of fences.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"FenceWrites":     writes[Tx],
		"FenceNoTerm":     noTerm[Tx],
		"FenceUnfenced":   unfenced[Tx],
		"FenceTakeover":   takeover[Tx],
		"FenceIsolation":  isolation[Tx],
		"FenceNames":      names[Tx],
		"FenceOwners":     owners[Tx],
		"FenceIdentifier": identifiers[Tx],
		"FenceExceptions": exceptions[Tx],
		"FenceBulk":       bulk[Tx],
		"FenceIsChecked":  isChecked[Tx],
		"FencePrivileges": privileges[Tx],
		"FenceInput":      input[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, func(e *conformance.Env[Tx]) {
				dbtest.Needs(e, e.Engine, dbtest.Triggers)
				f(&env[Tx]{*e})
			})
		})
	}
}

// orders creates the table orders, with rows that no lease has written.
func (e *env[Tx]) orders(ids ...string) *fence.Table[Tx] {
	e.Helper()
	e.Must(`CREATE TABLE orders (id ` + e.Text() + ` NOT NULL PRIMARY KEY, state VARCHAR(32) NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`)
	for _, id := range ids {
		e.Must(`INSERT INTO orders (id, state) VALUES ($1, 'new')`, e.TextKey(id))
	}
	return e.fence(fence.Spec{Table: "orders", Key: "order/{id}"})
}

func (e *env[Tx]) fence(spec fence.Spec) *fence.Table[Tx] {
	e.Helper()
	t, err := fence.New(e.Ctx, e.DB, spec)
	if err != nil {
		e.Fatal(err)
	}
	return t
}

func (e *env[Tx]) enforce(t *fence.Table[Tx]) {
	e.Helper()
	if err := t.Enforce(e.Ctx); err != nil {
		e.Fatal(err)
	}
}

// raw writes as another client would, with plain SQL.
func (e *env[Tx]) raw(query string, args ...any) error {
	_, err := e.SQL.ExecContext(e.Ctx, e.Rebind(query), args...)
	return err
}

// update writes one order as another client would.
func (e *env[Tx]) update(id, state string, token int64) error {
	return e.raw(`UPDATE orders SET state = $1, fence = $2 WHERE id = $3`, state, token, e.TextKey(id))
}

func (e *env[Tx]) wantRefused(what string, err error) {
	e.Helper()
	var refused *fence.RefusedError
	mapped := fence.AsLost(e.DB, err)
	if !errors.Is(mapped, sqllock.ErrLost) || !errors.As(mapped, &refused) || !errors.Is(mapped, err) || e.DB.Retryable(err) ||
		!strings.Contains(mapped.Error(), "holdfast fence: ") || e.DB.CommitOutcome(err) != holdfast.NotDone {
		e.Errorf("%s: got %v, want it refused", what, err)
	}
}

func (e *env[Tx]) wantPassed(what string, err error) {
	e.Helper()
	if err != nil {
		e.Errorf("%s: %v", what, err)
	}
}

// wantState reads an order; "" means that there is none.
func (e *env[Tx]) wantState(id, state string) {
	e.Helper()
	var got string
	err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(`SELECT state FROM orders WHERE id = $1`), e.TextKey(id)).Scan(&got)
	if err != nil && !errors.Is(err, sql.ErrNoRows) || got != state {
		e.Errorf("order %q is %q, want %q: %v", id, got, state, err)
	}
}

// writes checks what a term may write. Without the triggers, the write of an earlier term passes.
func writes[Tx any](e *env[Tx]) {
	orders := e.orders("a", "b")
	a, b := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	first := e.MustAcquire(a, "order/a")
	e.MustRelease(first)
	second := e.MustAcquire(b, "order/a")
	e.wantPassed("the next holder", e.update("a", "second", second.Token()))
	e.wantPassed("control: a stale write without triggers", e.update("a", "stale", first.Token()))
	e.wantState("a", "stale")

	for range 2 { // a second call changes nothing
		e.enforce(orders)
	}
	e.wantPassed("CheckEnforced", orders.CheckEnforced(e.Ctx))
	e.wantPassed("the holder", e.update("a", "second", second.Token()))
	for what, token := range map[string]int64{"a stale token": first.Token(), "no token": 0, "a token that was never granted": second.Token() + 1, "a negative one": -1} {
		e.wantRefused(what, e.update("a", "stale", token))
	}
	e.wantRefused("another row", e.update("b", "stale", second.Token()))
	e.wantRefused("all rows", e.raw(`UPDATE orders SET state = 'stale', fence = $1`, second.Token()))
	e.wantRefused("no row of its own", e.raw(`INSERT INTO orders (id, state, fence) VALUES ($1, 'stale', $2)`, e.TextKey("c"), second.Token()))
	e.wantRefused("another lock", e.raw(`UPDATE orders SET id = $1 WHERE id = $2`, e.TextKey("c"), e.TextKey("a")))
	e.MustAcquire(a, "order/c")
	e.Must(`UPDATE holdfast_locks SET token = $1 WHERE name = $2`, second.Token(), []byte("lorder/c"))
	e.wantRefused("another lock that is held, with the same token", e.raw(`UPDATE orders SET id = $1 WHERE id = $2`, e.TextKey("c"), e.TextKey("a")))
	e.wantState("c", "")
	upsert := map[bool]string{true: ` ON DUPLICATE KEY UPDATE state = 'stale', fence = 0`, false: ` ON CONFLICT (id) DO UPDATE SET state = 'stale', fence = 0`}[e.InnoDB()]
	e.wantRefused("an upsert", e.raw(`INSERT INTO orders (id, state, fence) VALUES ($1, 'stale', $2)`+upsert, e.TextKey("a"), second.Token()))
	e.wantState("a", "second")
	e.wantPassed("a statement that leaves the token, in the same term", e.raw(`UPDATE orders SET state = 'kept' WHERE id = $1`, e.TextKey("a")))

	// In the program's own transactions.
	e.wantPassed("guarded", b.InTx(e.Ctx, second, func(ctx context.Context, tx Tx) error {
		_, err := e.Exec(ctx, tx, `UPDATE orders SET state = 'guarded', fence = $1 WHERE id = $2`, second.Token(), e.TextKey("a"))
		return err
	}))
	e.wantState("a", "guarded")
	tx := e.BeginTx(sql.LevelDefault)
	_, err := e.Exec(e.Ctx, tx, `UPDATE orders SET state = 'stale', fence = $1 WHERE id = $2`, first.Token(), e.TextKey("a"))
	e.wantRefused("in a transaction", err)
	e.EndTx(tx, false)

	// A later term writes the row, and the statement that leaves the token is the later term's.
	e.MustRelease(second)
	e.wantRefused("released", e.update("a", "stale", second.Token()))
	e.wantRefused("released, and the token is left", e.raw(`UPDATE orders SET state = 'stale' WHERE id = $1`, e.TextKey("a")))
	third := e.MustAcquire(a, "order/a")
	e.wantRefused("an earlier token is left", e.raw(`UPDATE orders SET state = 'stale' WHERE id = $1`, e.TextKey("a")))
	e.wantRefused("a row that an earlier term wrote is deleted", e.raw(`DELETE FROM orders WHERE id = $1`, e.TextKey("a")))
	e.wantPassed("the third holder", e.update("a", "third", third.Token()))
	e.wantPassed("and deletes", e.raw(`DELETE FROM orders WHERE id = $1 AND fence = $2`, e.TextKey("a"), third.Token()))
	e.wantState("a", "")
	e.wantPassed("and inserts", e.raw(`INSERT INTO orders (id, state, fence) VALUES ($1, 'again', $2)`, e.TextKey("a"), third.Token()))
	if had, err := b.ForceRelease(e.Ctx, "order/a", third.Token(), holdfast.Actor{By: "test", Reason: "test"}); err != nil || !had {
		e.Errorf("force-release: %v, %v", had, err)
	}
	e.wantRefused("taken away", e.update("a", "stale", third.Token()))
	e.wantRefused("with the token of the force-release", e.update("a", "stale", int64(e.Int(`SELECT token FROM holdfast_locks WHERE name = $1`, []byte("lorder/a")))))
	e.wantState("a", "again")

	// Other errors stay unchanged.
	other := e.raw(`INSERT INTO orders (id, state) VALUES ($1, NULL)`, e.TextKey("d"))
	if mapped := fence.AsLost(e.DB, other); other == nil || !errors.Is(mapped, other) || errors.Is(mapped, sqllock.ErrLost) || fence.AsLost(e.DB, nil) != nil {
		e.Errorf("a NULL: %v", mapped)
	}
	for range 2 {
		e.wantPassed("Unenforce", orders.Unenforce(e.Ctx))
	}
	if err := orders.CheckEnforced(e.Ctx); !errors.Is(err, fence.ErrNotEnforced) {
		e.Error(err)
	}
	e.wantPassed("after Unenforce", e.update("a", "free", 0))
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

// noTerm checks that nothing passes without a live term: before the first one, and when the reaper
// has deleted the lock's row. The naive trigger lets a write pass if there is no row.
func noTerm[Tx any](e *env[Tx]) {
	orders := e.orders("a")
	e.enforce(orders)
	e.wantRefused("before the first term", e.update("a", "stale", 0))
	e.wantRefused("insert", e.raw(`INSERT INTO orders (id, state) VALUES ($1, 'stale')`, e.TextKey("b")))
	e.wantRefused("delete", e.raw(`DELETE FROM orders`))
	l := e.LockerWith(sqllock.Options{})
	lease := e.MustAcquire(l, "order/a")
	token := lease.Token()
	e.MustRelease(lease)
	e.Must(`UPDATE holdfast_floor SET token = $1`, token) // as the reaper does
	e.Must(`DELETE FROM holdfast_locks WHERE owner = '' AND name = $1`, []byte("lorder/a"))
	e.wantRefused("its row is gone", e.update("a", "stale", token))
	e.wantRefused("a later token", e.update("a", "stale", token+1))
	e.wantPassed("the next term", e.update("a", "next", e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a").Token()))
	e.wantState("a", "next")

	// Tables of locks that have lost terms grant tokens below the row's.
	e.Must(`UPDATE holdfast_locks SET token = 7 WHERE owner = '' AND name = $1`, []byte("lorder/a"))
	e.wantRefused("below the row's", e.update("a", "stale", 7))

	// A fair lock's ticket is no term of a lease.
	e.Must(`UPDATE holdfast_locks SET name = $1 WHERE owner = '' AND name = $2`, []byte("forder/a"), []byte("lorder/a"))
	e.wantRefused("another kind of lock", e.update("a", "stale", 1<<62))
}

// unfenced checks the options.
func unfenced[Tx any](e *env[Tx]) {
	e.orders("a")
	orders := e.fence(fence.Spec{Table: "orders", Key: "order/{id}", UnfencedInserts: true, UnfencedDeletes: true})
	e.enforce(orders)
	e.wantPassed("CheckEnforced", orders.CheckEnforced(e.Ctx))
	e.wantPassed("insert", e.raw(`INSERT INTO orders (id, state) VALUES ($1, 'new')`, e.TextKey("b")))
	e.wantPassed("delete", e.raw(`DELETE FROM orders WHERE id = $1`, e.TextKey("b")))
	e.wantRefused("insert with a token", e.raw(`INSERT INTO orders (id, state, fence) VALUES ($1, 'new', 5)`, e.TextKey("b")))
	e.wantRefused("update", e.raw(`UPDATE orders SET state = 'stale'`))
	lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a")
	e.wantPassed("update in a term", e.update("a", "held", lease.Token()))

	// Another Spec is another trigger.
	strict := e.fence(fence.Spec{Table: "orders", Key: "order/{id}"})
	if err := strict.CheckEnforced(e.Ctx); !errors.Is(err, fence.ErrNotEnforced) {
		e.Errorf("the triggers of another Spec: %v", err)
	}
	e.wantPassed("Unenforce", strict.Unenforce(e.Ctx))
	e.enforce(strict)
	e.wantRefused("insert", e.raw(`INSERT INTO orders (id, state) VALUES ($1, 'new')`, e.TextKey("b")))

	// One lock for the whole table.
	e.wantPassed("Unenforce", strict.Unenforce(e.Ctx))
	e.enforce(e.fence(fence.Spec{Table: "orders", Key: "all {{orders}}"}))
	e.wantRefused("the lease of one row", e.update("a", "stale", lease.Token()))
	all := e.MustAcquire(e.LockerWith(sqllock.Options{}), "all {orders}")
	e.wantPassed("the lease of all", e.raw(`UPDATE orders SET state = 'all', fence = $1`, all.Token()))
	e.wantPassed("which may rename", e.raw(`UPDATE orders SET id = $1`, e.TextKey("z")))
}

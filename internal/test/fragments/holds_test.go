package fragments

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock"
)

// overtakenLease stops A until its lease has ended and B has the lock. A's release leaves B's lease alone.
func overtakenLease(t *testing.T) {
	kit := database(t)
	a := try(t, locker(t, kit))
	end(t, kit)
	b := try(t, locker(t, kit))
	if a == nil || b == nil || b.Token() <= a.Token() {
		t.Fatalf("A has %v, B has %v", a, b)
	}
	if err := a.Release(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("A releases what it has lost: %v", err)
	}
	if try(t, locker(t, kit)) != nil {
		t.Error("C has B's lock")
	}
}

// abandonedLease kills A right after its one statement. The lease expires.
func abandonedLease(t *testing.T) {
	kit := database(t)
	if try(t, locker(t, kit)) == nil {
		t.Fatal("A has no lease")
	}
	if exec(t, kit.Pool, `UPDATE holdfast_locks SET expires_at = expires_at - 3600000000`) != 1 { // an hour later
		t.Fatal("there is no lease")
	}
	if try(t, locker(t, kit)) == nil {
		t.Error("B has no lease after A's has ended")
	}
}

// heldLease shows that a second process has no say in when a lease ends: it sends a name, and no time.
func heldLease(t *testing.T) {
	kit := database(t)
	if try(t, locker(t, kit)) == nil || try(t, locker(t, kit)) != nil {
		t.Error("one of two should have the lock")
	}
}

// guardedLease is the schedule of refundsOf behind Guard.
func guardedLease(t *testing.T) {
	kit := database(t, ordersTable, `INSERT INTO orders VALUES ('42', 100, 1)`)
	work := func(refund int, want error) *process {
		locks := locker(t, kit)
		return begin(t, func(at func(string)) {
			lease := try(t, locks)
			if lease == nil {
				t.Error("no lease")
				return
			}
			left := cents(t, kit.Pool) - refund
			at("read")
			err := locks.InTx(t.Context(), lease, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `UPDATE orders SET cents = ?`, left)
				return err
			})
			if !errors.Is(err, want) {
				t.Errorf("refund of %d: %v, want %v", refund, err, want)
			}
		})
	}
	a, b := work(30, sqllock.ErrLost), work(40, nil)
	a.runTo("read")
	end(t, kit)
	b.runTo("read")
	b.finish()
	a.finish()
	if n := cents(t, kit.Pool); n != 60 {
		t.Errorf("%d cents, want 60: B's refund alone", n)
	}
}

// enforcedVersion is the schedule of forgottenWriter with the trigger of optimistic.Table.Enforce.
func enforcedVersion(t *testing.T) {
	kit := database(t, ordersTable, `INSERT INTO orders VALUES ('42', 100, 1)`)
	type order struct {
		Number  string `db:"order_no"`
		Cents   int64  `db:"cents"`
		Version int64  `db:"version"`
	}
	orders, err := optimistic.New[order](t.Context(), kit.DB, holdfast.TableSpec{Table: "orders", Key: []string{"order_no"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := orders.Enforce(t.Context()); err != nil {
		t.Fatal(err)
	}
	read, err := orders.Get(t.Context(), order{Number: "42"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = kit.Pool.ExecContext(t.Context(), `UPDATE orders SET cents = cents - 40`)
	if !errors.Is(optimistic.AsConflict(kit.DB, err), optimistic.ErrConflict) {
		t.Errorf("the script's write: %v, want it refused", err)
	}
	read.Cents -= 30
	if _, err := orders.Update(t.Context(), read); err != nil {
		t.Error(err)
	}
	if n := cents(t, kit.Pool); n != 70 {
		t.Errorf("%d cents, want 70: the script was told, and nothing is lost", n)
	}
}

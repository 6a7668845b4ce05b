package fairlock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

func settleOnce(ctx context.Context, locks *sqllock.Locker[*sql.Tx]) error {
	return locks.Do(ctx, "settlement", func(ctx context.Context, lease *sqllock.Lease) error {
		return locks.InTx(ctx, lease, settle) // commits only if no other holder came
	})
}

func settleInOrder(ctx context.Context, locks *sqllock.Locker[*sql.Tx]) error {
	return fairlock.New(locks).Do(ctx, "settlement", func(ctx context.Context, lease *sqllock.Lease) error {
		return locks.InTx(ctx, lease, settle)
	})
}

func settleLocked(ctx context.Context, db *holdfast.DB[*sql.Tx], rowLocks *rowlock.Locker[*sql.Tx], key string) error {
	return db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := rowLocks.LockTx(ctx, tx, key, 5*time.Second); err != nil { // exact keys, a bounded wait
			return err
		}
		return settle(ctx, tx)
	})
}

func settle(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO settlements (at) VALUES (1)`)
	return err
}

// TestHowToMigrate runs what docs/howto/migrate.md shows. A lease that was lost is named, which the lease's
// own context would hide.
func TestHowToMigrate(t *testing.T) {
	t.Parallel()
	ctx, kit := t.Context(), holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := kit.Pool.ExecContext(ctx, `CREATE TABLE settlements (at INTEGER)`)
	must(err)
	open := func(ttl time.Duration) *sqllock.Locker[*sql.Tx] {
		t.Helper()
		locks, err := sqllock.New(ctx, kit.DB, sqllock.Options{TTL: ttl})
		must(err)
		t.Cleanup(func() { must(locks.Close(context.WithoutCancel(ctx))) })
		return locks
	}
	locks := open(time.Hour)
	rowLocks, err := rowlock.New(ctx, kit.DB)
	must(err)

	must(settleOnce(ctx, locks))
	must(settleInOrder(ctx, locks))
	must(settleLocked(ctx, kit.DB, rowLocks, "settlement"))
	locks = open(time.Second) // a renewal finds that the lease is lost
	err = locks.Do(ctx, "settlement", func(ctx context.Context, lease *sqllock.Lease) error {
		kit.LoseLease(kit.Owner, "settlement")
		<-lease.Context().Done()
		if err := locks.InTx(lease.Context(), lease, settle); errors.Is(err, sqllock.ErrLost) {
			t.Errorf("with the lease's context the error is %v, too: change docs/howto/migrate.md", err)
		}
		return locks.InTx(ctx, lease, settle)
	})
	if !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("a lost lease is %v", err)
	}
	var n int
	must(kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM settlements`).Scan(&n))
	if n != 3 {
		t.Errorf("%d settlements, want 3", n)
	}
}

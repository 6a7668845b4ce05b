package leases

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// These statements make another session's open transaction block an acquire on the server. The
// parameter of the insert is the lock's name.
const (
	cancelledInsert = `INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES ('', $1, 1, NULL, '', 0, 0)`
	cancelledFloor  = `UPDATE holdfast_floor SET token = token WHERE id = 1`
)

// leaseCancelledBehind cancels an acquire that waits on the server. The server continues:
// go-sql-driver does not stop the statement, which grants the lock later. The Locker releases
// that grant long before its TTL. The naive form stops at the cancelled context and leaves a
// lock without a holder.
func leaseCancelledBehind[Tx any](block string) func(e *env[Tx]) {
	return func(e *env[Tx]) {
		const ttl = time.Hour
		key, naive := "cancelled "+e.Name(), "naive "+e.Name()
		l, other := e.LockerWith(sqllock.Options{TTL: ttl}), e.LockerWith(sqllock.Options{TTL: ttl})
		behind := func(key string, waits bool, f func(ctx context.Context)) {
			tx, err := e.SQL.BeginTx(e.Ctx, nil)
			if err != nil {
				e.Fatal(err)
			}
			var args []any
			if block == cancelledInsert {
				args = append(args, leaseRow(key))
			}
			if _, err := tx.ExecContext(e.Ctx, e.Rebind(block), args...); err != nil {
				e.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(e.Ctx, 500*time.Millisecond)
			if waits {
				ctx, cancel = context.WithCancel(e.Ctx)
			}
			defer cancel()
			var called sync.WaitGroup
			called.Go(func() { f(ctx) })
			if waits { // on a server that continues after the cancellation
				e.Eventually("it waits on the server", func() bool { return e.Waiters() > 0 })
				cancel()
			}
			called.Wait()
			if err := tx.Rollback(); err != nil {
				e.Fatal(err)
			}
		}
		// On MariaDB no acquire waits on the server: the client sends it again until it
		// succeeds.
		behind(key, e.Engine == dbtest.MySQL, func(ctx context.Context) {
			if lease, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				e.Errorf("a cancelled acquire: %v, %v", lease, err)
			}
		})
		e.Eventually("the lock is free", func() bool {
			lease, err := other.TryAcquire(e.Ctx, key)
			if err == nil {
				e.MustRelease(lease)
			}
			return err == nil
		})

		if e.Engine != dbtest.MySQL && e.Engine != dbtest.MariaDB {
			return // the cancellation reaches the server, or the statement runs in this process, or is refused
		}
		behind(naive, true, func(ctx context.Context) {
			_, _ = e.SQL.ExecContext(ctx, e.Rebind(e.now(`INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at)
SELECT '', $1, 1, $2, 'naive', {now}, {now} + 3600000000 FROM holdfast_floor LOCK IN SHARE MODE`)), leaseRow(naive), []byte("0123456789abcdef"))
		})
		e.Eventually("the naive form's grant comes late", func() bool {
			return e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE owner = '' AND name = $1`, leaseRow(naive)) == 1
		})
		e.wantHeld(other, naive)
	}
}

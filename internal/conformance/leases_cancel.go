package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
)

// What an acquire waits for on the server, with another session's transaction
// open on it. Parameter of the insert: the lock's name.
const (
	cancelledInsert = `INSERT INTO holdfast_locks (name, token, owner, holder, granted_at, expires_at) VALUES ($1, 1, NULL, '', 0, 0)`
	cancelledFloor  = `UPDATE holdfast_floor SET token = token WHERE id = 1`
)

// leaseCancelledBehind: an acquire that waits on the server is cancelled, and
// the server goes on: go-sql-driver leaves it its statement, which grants the
// lock later. That grant is taken back long before its TTL. The naive form,
// which leaves it at the cancelled context, has the lock held by nobody.
func leaseCancelledBehind[Tx any](block string) func(e *Env[Tx]) {
	return func(e *Env[Tx]) {
		const ttl = time.Hour
		key, naive := "cancelled "+e.Name(), "naive "+e.Name()
		l, other := e.leaser(sqllock.Options{TTL: ttl}), e.leaser(sqllock.Options{TTL: ttl})
		behind := func(key string, f func(ctx context.Context)) {
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
			defer cancel()
			f(ctx)
			if err := tx.Rollback(); err != nil {
				e.Fatal(err)
			}
		}
		behind(key, func(ctx context.Context) {
			if lease, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("a cancelled acquire: %v, %v", lease, err)
			}
		})
		e.Eventually("the lock is free", func() bool {
			lease, err := other.TryAcquire(e.Ctx, key)
			if err == nil {
				e.mustRelease(lease)
			}
			return err == nil
		})

		if !e.InnoDB() {
			return // the cancel reaches the server, or the statement runs in this process
		}
		behind(naive, func(ctx context.Context) {
			_, _ = e.SQL.ExecContext(ctx, e.Rebind(e.now(`INSERT INTO holdfast_locks (name, token, owner, holder, granted_at, expires_at)
SELECT $1, 1, $2, 'naive', {now}, {now} + 3600000000 FROM holdfast_floor LOCK IN SHARE MODE`)), leaseRow(naive), []byte("0123456789abcdef"))
		})
		e.Eventually("the naive form's grant comes late", func() bool { return e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE name = $1`, leaseRow(naive)) == 1 })
		e.wantHeld(other, naive)
	}
}

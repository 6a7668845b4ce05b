package tracetest

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

func is(err, want error) bool { return errors.Is(err, want) || want == nil && err == nil }

func nothing(context.Context, *sqllock.Lease) error { return nil }

func (w *world) leases() {
	lease, err := w.lock.Acquire(w.ctx, Secret)
	w.want(err, nil)
	_, err = w.lock.TryAcquire(w.ctx, Secret)
	w.want(err, sqllock.ErrHeld)
	_, err = w.lock.Acquire(w.soon(), Secret)
	w.want(err, context.DeadlineExceeded)
	_, err = w.lock.Acquire(w.ctx, "")
	w.want(err, holdfast.ErrInvalid)
	w.in(func(tx *sql.Tx) { w.want(w.lock.Guard(w.ctx, tx, lease.Term()), nil) })
	w.want(lease.Release(w.ctx), nil)
	w.in(func(tx *sql.Tx) { w.want(w.lock.Guard(w.ctx, tx, lease.Term()), sqllock.ErrLost) })
	w.want(w.lock.Do(w.ctx, Secret, nothing), nil)
	func() {
		defer func() { _ = recover() }()
		_ = w.lock.Do(w.ctx, Secret, func(context.Context, *sqllock.Lease) error { panic(Secret) })
	}()
	all, err := w.lock.AcquireAll(w.ctx, []string{Secret, Secret + "2"})
	w.want(err, nil)
	_, err = w.lock.TryAcquireAll(w.ctx, []string{Secret})
	w.want(err, sqllock.ErrHeld)
	w.want(all.Release(w.ctx), nil)
	leader, err := election.New(w.lock, Secret).Campaign(w.ctx, []byte(Secret))
	w.want(err, nil)
	w.want(leader.Resign(w.ctx), nil)
	_, err = w.rowLocks().Hold(w.ctx, Secret, holdfast.NoWait)
	w.want(err, holdfast.ErrUnsupported)
}

// lost loses a lease in each way.
func (w *world) lost() {
	expires, err := w.lock.Acquire(w.ctx, Secret+" expires", sqllock.AcquireOptions{TTL: 50 * time.Millisecond, NoRenewal: true})
	w.want(err, nil)
	<-expires.Context().Done()
	w.want(expires.Release(w.ctx), nil) // no other call acquired it since

	taken, err := w.lock.Acquire(w.ctx, Secret+" taken", sqllock.AcquireOptions{TTL: 3 * time.Second})
	w.want(err, nil)
	_, err = w.lock.ForceRelease(w.ctx, Secret+" taken", 0, holdfast.Actor{By: "test", Reason: Secret})
	w.want(err, nil)
	<-taken.Context().Done() // its renewal noticed
	w.want(context.Cause(taken.Context()), sqllock.ErrLost)

	late, err := w.lock.Acquire(w.ctx, Secret+" late")
	w.want(err, nil)
	w.kit.LoseLease("", Secret+" late")
	w.want(late.Release(w.ctx), sqllock.ErrLost)

	handed, err := w.lock.Acquire(w.ctx, Secret+" handed over")
	w.want(err, nil)
	handle, err := handed.Handle()
	w.want(err, nil)
	resumed, err := w.lock.Resume(w.ctx, handle)
	w.want(err, nil)
	_, err = w.lock.Resume(w.ctx, handle)
	w.want(err, sqllock.ErrLost)
	w.want(resumed.Release(w.ctx), nil)

	const ttl = 3 * time.Second
	held, err := w.lock.Acquire(w.ctx, Secret+" renewed", sqllock.AcquireOptions{TTL: ttl})
	w.want(err, nil)
	for left := ttl; ; time.Sleep(10 * time.Millisecond) {
		if held.Context().Err() != nil { // no renewal came in time
			held, err = w.lock.Acquire(w.ctx, Secret+" renewed", sqllock.AcquireOptions{TTL: ttl})
			w.want(err, nil)
			left = ttl
		}
		info, _, err := w.lock.Inspect(w.ctx, held.Key())
		w.want(err, nil)
		if info.Remaining > left {
			break // only a renewal gives it more
		}
		left = info.Remaining
	}
	w.want(held.Release(w.ctx), nil)
}

func (w *world) lines() {
	fair, err := fairlock.New(w.lock).Acquire(w.ctx, Secret)
	w.want(err, nil)
	_, err = fairlock.New(w.lock).TryAcquire(w.ctx, Secret)
	w.want(err, sqllock.ErrHeld)
	_, err = fairlock.New(w.lock).TryAcquireShared(w.ctx, Secret)
	w.want(err, sqllock.ErrHeld)
	_, err = fairlock.New(w.lock).ForceRelease(w.ctx, Secret, fair.Token(), holdfast.Actor{By: "test", Reason: Secret})
	w.want(err, nil)
	w.want(fair.Release(w.ctx), sqllock.ErrLost)
	w.want(fairlock.New(w.lock).Do(w.ctx, Secret, nothing), nil)
	w.want(fairlock.New(w.lock).DoShared(w.ctx, Secret, nothing), nil)

	sem, err := fairlock.New(w.lock).Semaphore(Secret, 2)
	w.want(err, nil)
	permit, err := sem.Acquire(w.ctx, 2)
	w.want(err, nil)
	_, err = sem.TryAcquire(w.ctx, 1)
	w.want(err, sqllock.ErrHeld)
	_, err = sem.ForceRelease(w.ctx, permit.Token()+1, holdfast.Actor{By: "test", Reason: Secret})
	w.want(err, nil)
	w.want(permit.Release(w.ctx), nil)
	w.want(sem.Do(w.ctx, 1, nothing), nil)
}

type refund struct {
	RefundNo string `db:"refund_no"`
	Cents    int64  `db:"cents"`
}

func (w *world) rowLocks() *rowlock.Locker[*sql.Tx] {
	locks, err := rowlock.New(w.ctx, w.kit.DB)
	w.want(err, nil)
	return locks
}

func (w *world) rows() {
	locks := w.rowLocks()
	table, err := rowlock.NewTable[refund](w.ctx, w.kit.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}})
	w.want(err, nil)
	w.in(func(tx *sql.Tx) { w.want(locks.LockTx(w.ctx, tx, Secret, holdfast.Forever), nil) })
	w.in(func(tx *sql.Tx) {
		_, err := table.LockTx(w.ctx, tx, holdfast.NoWait, refund{RefundNo: Secret})
		w.want(err, rowlock.ErrNotFound)
	})
	w.in(func(tx *sql.Tx) {
		_, err := table.NextTx(w.ctx, tx, 10)
		w.want(err, nil)
	})
}

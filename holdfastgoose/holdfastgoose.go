// Package holdfastgoose lets the replicas of a program start together and migrate once: goose's Locker as a lease of
// package sqllock, on every database that Holdfast supports, and not on those alone for which goose has one.
//
//	locks, err := sqllock.New(ctx, db)
//	provider, err := goose.NewProvider(goose.DialectMySQL, pool, files,
//		goose.WithLocker(holdfastgoose.New(locks.For("service"), "goose")))
//
// The lease's rows are in Holdfast's tables: make those before with package migrations, whose runs have a lock of
// their own.
package holdfastgoose

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
)

// New returns a Locker for a provider of goose. It holds the lease on key, of locks' owner, and ignores the *sql.DB that
// goose passes. All programs that migrate the same tables must use the same key. Lock waits until its context ends.
//
// A lease that is not renewed in time, in a process that was stopped for longer than its TTL, may be granted to another
// replica while a migration still runs. Unlock returns [sqllock.ErrLost] then, and goose's call fails: look at what was
// applied. A statement of a migration that is safe when it is repeated stays so.
//
// Errors of Lock: those of [sqllock.Locker.Acquire]. Unlock without a Lock is [holdfast.ErrInvalid].
func New[Tx any](locks *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) lock.Locker {
	return &locker[Tx]{locks: locks, key: key, opts: opts, lease: make(chan *sqllock.Lease, 1)}
}

type locker[Tx any] struct {
	locks *sqllock.Locker[Tx]
	key   string
	opts  []sqllock.AcquireOptions
	lease chan *sqllock.Lease // has the lease between Lock and Unlock
}

func (l *locker[Tx]) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.locks.Acquire(ctx, l.key, l.opts...)
	if err != nil {
		return err
	}
	select {
	case l.lease <- lease:
		return nil
	case <-ctx.Done(): // the one before was lost, and its Unlock is still to come
		_ = lease.Release(context.WithoutCancel(ctx))
		return context.Cause(ctx)
	}
}

func (l *locker[Tx]) Unlock(ctx context.Context, _ *sql.DB) error {
	select {
	case lease := <-l.lease:
		return lease.Release(context.WithoutCancel(ctx)) // goose may call it after its context has ended
	default:
		return fmt.Errorf("%w: holdfastgoose: Unlock without a Lock before it", holdfast.ErrInvalid)
	}
}

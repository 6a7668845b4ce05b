package sqllock

import (
	"context"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// InTx runs fn in a transaction that commits only while no later term of the
// lease was granted. It is [holdfast.DB.InTx] with [Locker.Guard] as the first
// statement of every attempt.
//
// Both the transaction and fn's context derive from ctx, not from the lease's context. The
// guard protects the transaction even after the lease's trust window has ended: no other term
// is granted before the transaction ends. Inside [Locker.Do], pass the context that Do was
// given. For work outside the database that must stop with the lease, use lease.Context()
// inside fn.
//
// fn must not end the transaction, nor run DDL on MySQL and MariaDB, which ends it too. It must be safe to run more than once: after a deadlock or a serialization failure InTx runs
// the transaction again, starting with the guard.
//
// Errors: those of Guard ([ErrLost], [ErrOtherStore]), and then nothing is written and fn did
// not run in the refused attempt; the error of fn; those of holdfast.DB.InTx;
// [holdfast.ErrInvalid] when lease is nil.
func (l *Locker[Tx]) InTx(ctx context.Context, lease *Lease, fn func(ctx context.Context, tx Tx) error, opts ...holdfast.TxOptions) error {
	if lease == nil {
		return keeper.Invalid("lease", "is nil: give the lease that protects the transaction")
	}
	return l.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := l.Guard(ctx, tx, lease.Term()); err != nil {
			return err
		}
		return fn(ctx, tx)
	}, opts...)
}

package sqllock

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Guard lets the caller's transaction commit only while no later term of its leases was
// granted. It locks the rows of the terms, in share mode, until the transaction ends, and the
// next grant waits for that. Guard is safe against any pause of this process and against any
// clock. It accepts a term whose context has ended or whose expiry has passed, as long as the
// lock was not granted again. When Guard returns ErrLost for a term that l granted, the context
// of that term's lease has ended.
//
// The terms must be of l's own owner: see [Locker.For].
//
// Call Guard first in the transaction, outside savepoints, with all terms that the transaction
// depends on. [Locker.InTx] does that. On SQLite Guard takes the only write lock. On Galera
// Guard writes the row, because a lock does not reach other nodes: of two transactions on two
// nodes one is refused. So two transactions that are guarded by one term, or a guarded
// transaction and a renewal, may return ErrRetry.
//
// Errors: [ErrLost] as a *[LostError]; [ErrOtherStore], also for every term after holdfast
// after-restore has run since l was opened; [holdfast.ErrNoTx]; [holdfast.ErrTxLost] when the
// transaction had already ended (on engines that report it); [holdfast.ErrRetry], also when the
// transaction's snapshot is older than the grant, under REPEATABLE READ; [holdfast.ErrInvalid];
// the driver's. After every error Holdfast has rolled tx back, with three exceptions:
// ErrInvalid, ErrNoTx, and ErrOtherStore for a term of other tables.
func (l *Locker[Tx]) Guard(ctx context.Context, tx Tx, terms ...Term) (err error) {
	k := l.leases.k
	ctx, op := k.StartCall(ctx, "lease.guard", "")
	defer func() { op.End(err, keeper.Outcome) }()
	q, err := l.access.Join(tx)
	if err != nil {
		return err
	}
	kept := make([]keeper.Term, len(terms))
	for i, t := range terms {
		kept[i] = keeper.Term(t)
	}
	if err := k.CheckTerms(l.owner, kept); err != nil {
		return err
	}
	if err := l.guard(ctx, q, kept); err != nil {
		ctx, cancel := core.Cleanup(ctx)
		defer cancel()
		_ = l.access.Rollback(ctx, tx) // fails if the connection or the transaction has ended
		return err
	}
	return nil
}

func (l *Locker[Tx]) guard(ctx context.Context, q core.Querier, terms []keeper.Term) error {
	if err := l.access.Alive(ctx, q); err != nil {
		return err
	}
	return l.leases.k.Guard(ctx, q, terms)
}

// Term returns the term of a lease that was granted elsewhere, for example in the process that
// sent a message with the key and token. The lease must be in l's own tables. It guards the process that has
// the term, also after a [Locker.Resume], so it does not equal the term of the lease.
func (l *Locker[Tx]) Term(key string, token int64) Term {
	return Term(l.leases.k.TermOf(lockname.Lease, l.owner, key, token))
}

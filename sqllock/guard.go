package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// errStale is why a transaction is refused whose snapshot is older than the grant.
var errStale = errors.New("the transaction's snapshot is older than the lease: call Guard first in the transaction")

// Guard has the caller's transaction commit only while no later term of its
// leases was granted: it locks their rows, in share mode, until the transaction
// ends, and the next grant waits for that. It is safe against any pause of this
// process and any clock; the lease's context need not be alive, and its expiry
// may have passed, as long as nobody was granted the lock since.
//
// Call it first in the transaction, with all terms that matter to it at once,
// and outside savepoints. On SQLite it takes the only write lock. On Galera it
// writes the row, so that of two transactions on two nodes one is refused: two
// that are guarded by one term, or one and a renewal, may answer ErrRetry.
//
// Errors: [ErrLost] as a *[LostError], [ErrOtherStore], [holdfast.ErrNoTx],
// [holdfast.ErrTxLost] where the transaction had ended (on engines that can
// tell), [holdfast.ErrRetry] (also of a snapshot older than the grant, under
// REPEATABLE READ), [holdfast.ErrInvalid], the driver's. After every error but
// ErrInvalid, ErrNoTx and ErrOtherStore Holdfast has rolled tx back.
func (l *Locker[Tx]) Guard(ctx context.Context, tx Tx, terms ...Term) (err error) {
	ctx, op := l.leases.tell(ctx, "lease.guard", "")
	defer func() { op.End(err, outcome) }()
	q, err := l.access.Join(tx)
	if err != nil {
		return err
	}
	if len(terms) == 0 {
		return invalid("terms", "there is none: give those that the transaction depends on, as lease.Term()")
	}
	for _, t := range terms {
		_, err := nameOf(kindLease, t.key)
		switch {
		case t.key == "" || t.token <= 0:
			return invalid("terms", "one is the zero Term: give lease.Term()")
		case err != nil:
			return err
		case t.store != l.leases.store.id:
			return fmt.Errorf("%w: key %.40q, token %d: guard it with the Locker that granted it, or one on the same tables", ErrOtherStore, t.key, t.token)
		}
	}
	if err := l.guard(ctx, q, terms); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
		defer cancel()
		_ = l.access.Rollback(ctx, tx) // the connection is gone, or the transaction was
		return err
	}
	return nil
}

func (l *Locker[Tx]) guard(ctx context.Context, q core.Querier, terms []Term) error {
	if err := l.access.Alive(ctx, q); err != nil {
		return err
	}
	// In the order of the keys, so that two such transactions do not deadlock.
	terms = slices.Clone(terms)
	slices.SortFunc(terms, func(a, b Term) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.key, b.key), cmp.Compare(a.token, b.token))
	})
	s := l.leases.store
	for _, t := range terms {
		name, err := nameOf(t.kind, t.key)
		if err != nil {
			return err
		}
		var fresh int
		var found bool
		if t.kind == kindLease {
			found, err = s.guard.QueryRow(ctx, q, []any{&fresh}, name, t.token)
		} else {
			found, fresh, err = s.guardClaim(ctx, q, name, t.token)
		}
		if write := s.guardWrite(t.kind); err == nil && found && fresh == 1 && write.Text != "" {
			_, err = write.Exec(ctx, q, name, t.token)
		}
		if class := s.dialect.Classify(err); class == dialect.Retry || class == dialect.Busy {
			return &holdfast.RetryError{Attempts: 1, Err: err}
		}
		switch {
		case err != nil:
			return s.missing(err)
		case !found:
			return &LostError{Key: t.key, Token: t.token, Reason: "another term was granted since, or it was released or taken away"}
		case fresh == 0:
			return &holdfast.RetryError{Attempts: 1, Err: errStale}
		}
	}
	return nil
}

func (s *store) guardWrite(k kind) core.Stmt {
	if k == kindLease {
		return s.write
	}
	return s.claims.write
}

// Term names a term that was granted elsewhere, such as in the process that
// sent a message with its key and token. The tables must be l's own.
func (l *Locker[Tx]) Term(key string, token int64) Term {
	return Term{kind: kindLease, key: key, token: token, store: l.leases.store.id}
}

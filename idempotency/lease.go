package idempotency

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/sqllock"
)

// leased is the lease under which a store's operations run.
type leased[Tx any] struct {
	locker *sqllock.Locker[Tx]
	term   sqllock.Term
}

// WithLease returns s for a caller that holds a lease on the operation: the lock becomes the
// business record. Acquire the lease on LeaseKey(op), do what must come before (query, prepare,
// wait for a person), and pass the term to Do or DoTx:
//
//	lease, err := locker.For(op.Owner).Acquire(ctx, key) // key, _ := store.LeaseKey(op)
//	... // return err
//	defer func() { _ = lease.Release(ctx) }()
//	... // what takes long, on lease.Context()
//	return idempotency.Do(ctx, store.WithLease(locker, lease.Term()), op, fn)
//
// Guard, claim, fn and result are one transaction. So a holder that lost its lease, for example by
// a long pause, cannot create the record: it gets [sqllock.ErrLost], and nothing was done. After
// the commit, the record answers every call, with or without a lease, and the lease may be
// released or left to expire. A call without a lease can still create the record. The key, and not
// the lease, guarantees a single effect.
//
// Do replays an existing record even if the lease was lost. DoTx guards first, because a guard
// must be at the beginning of a transaction, and rolls the caller's transaction back with ErrLost.
// DoTx must come before every other statement of that transaction (see [sqllock.Locker.Guard]).
//
// A term of another owner than op.Owner, or of another key than LeaseKey(op), fails with
// [holdfast.ErrInvalid]. A term of another locker's tables fails with [sqllock.ErrOtherStore].
func (s *Store[Tx]) WithLease(locker *sqllock.Locker[Tx], term sqllock.Term) *Store[Tx] {
	with := *s // flights are shared: duplicates with and without a lease are duplicates
	with.lease = &leased[Tx]{locker, term}
	with.expectNew = new(once.ExpectNew) // so that it reads first: a record answers before the guard
	return &with
}

// LeaseKey returns the key of the lease that WithLease requires for op: the namespace, the name and
// the key, joined as KeyOf does, or a hash of them if that is too long for a lock. The lease is of
// op's owner: see [sqllock.Locker.For]. LeaseKey uses only Owner, Name and Key of op.
//
// Errors: [holdfast.ErrInvalid].
func (s *Store[Tx]) LeaseKey(op Op) (string, error) {
	c, err := s.scope(op)
	if err != nil {
		return "", err
	}
	key := KeyOf(s.options.Namespace, op.Name, c.op.Key)
	if len(key) > sqllock.MaxKey {
		key = "sha256:" + hex.EncodeToString(c.hash[:]) // no joined key lacks a "/"
	}
	return key, nil
}

// RecordKey returns the key of op's record in the table of records: the value of its column
// key_hash, 32 bytes, which identifies the row together with the column owner. RecordKey uses only
// Owner, Name and Key of op.
//
// Errors: [holdfast.ErrInvalid].
func (s *Store[Tx]) RecordKey(op Op) ([]byte, error) {
	c, err := s.scope(op)
	if err != nil {
		return nil, err
	}
	return c.hash[:], nil
}

// scope checks the names that identify an operation.
func (s *Store[Tx]) scope(op Op) (*call, error) {
	return s.options.check(Op{Owner: op.Owner, Name: op.Name, Key: op.Key, NoFingerprint: true})
}

// check checks op against the store's options, and the lease if there is one.
func (s *Store[Tx]) check(op Op) (*call, error) {
	c, err := s.options.check(op)
	if err == nil && s.lease != nil {
		err = s.checkLease(op)
	}
	return c, err
}

func (s *Store[Tx]) checkLease(op Op) error {
	if s.lease.locker == nil {
		return once.Invalid("WithLease", "its locker is nil")
	}
	key, err := s.LeaseKey(op)
	switch {
	case err != nil:
		return err
	case s.lease.term.Owner() != op.Owner:
		return once.Invalid("WithLease", fmt.Sprintf("its term is one of the owner %.40q, and not of the operation's, %.40q: acquire the lease with locker.For(op.Owner)", s.lease.term.Owner(), op.Owner))
	case s.lease.term.Key() != key:
		return once.Invalid("WithLease", fmt.Sprintf("its term is one of the key %.60q, and not of this operation's: acquire the lease on LeaseKey(op), which is %.60q", s.lease.term.Key(), key))
	}
	return nil
}

// guard locks the row of the lease until tx ends.
func (s *Store[Tx]) guard(ctx context.Context, tx Tx) error {
	return s.lease.locker.For(s.lease.term.Owner()).Guard(ctx, tx, s.lease.term)
}

package idempotency

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/holdfast-go/holdfast/sqllock"
)

// leased is the lease that a store's operations are done under.
type leased[Tx any] struct {
	locker *sqllock.Locker[Tx]
	term   sqllock.Term
}

// WithLease is s for a caller that holds a lease on the operation: the lock
// becomes the business record. Take the lease on LeaseKey(op), do what has to
// come before (ask, prepare, wait for a person), and give the term to Do or DoTx:
//
//	lease, err := locker.Acquire(ctx, key) // key, _ := store.LeaseKey(op)
//	...
//	res, err := idempotency.Do(ctx, store.WithLease(locker, lease.Term()), op, fn)
//	err = lease.Release(ctx)
//
// Guard, claim, fn and result are one transaction, so a holder that lost its
// lease, by whatever pause, cannot make the record: it gets [sqllock.ErrLost],
// and nothing was done. From the commit on the record answers, whoever asks and
// with or without a lease; the lease may be released, or left to expire. A call
// without a lease is not kept from making the record: the key is what has one
// effect, whoever wins.
//
// Do replays a record that is there also where the lease was lost; DoTx guards
// first, since a guard belongs to the beginning of a transaction, and rolls the
// caller's back with ErrLost. It must come before every other statement of that
// transaction (see [sqllock.Locker.Guard]).
//
// A term of another key than LeaseKey(op), or of another locker's tables, is
// refused: [holdfast.ErrInvalid], [sqllock.ErrOtherStore].
func (s *Store[Tx]) WithLease(locker *sqllock.Locker[Tx], term sqllock.Term) *Store[Tx] {
	with := *s // flights are shared: duplicates with and without a lease are duplicates
	with.lease = &leased[Tx]{locker, term}
	return &with
}

// LeaseKey is the key of the lease that WithLease takes for op: its namespace,
// tenant, name and key joined as KeyOf does, or a hash of them if that is too
// long for a lock. Only these fields of op count.
//
// Errors: [holdfast.ErrInvalid].
func (s *Store[Tx]) LeaseKey(op Op) (string, error) {
	c, err := s.scope(op)
	if err != nil {
		return "", err
	}
	key := KeyOf(s.options.Namespace, op.Tenant, op.Name, op.Key)
	if len(key) > sqllock.MaxKey {
		key = "sha256:" + hex.EncodeToString(c.hash[:]) // no joined key lacks a "/"
	}
	return key, nil
}

// RecordKey is what op's record is found by in the table of records: its column
// key_hash, 32 bytes. Only Tenant, Name and Key of op count.
//
// Errors: [holdfast.ErrInvalid].
func (s *Store[Tx]) RecordKey(op Op) ([]byte, error) {
	c, err := s.scope(op)
	if err != nil {
		return nil, err
	}
	return c.hash[:], nil
}

// scope checks what names an operation.
func (s *Store[Tx]) scope(op Op) (*claim, error) {
	return s.options.check(Op{Tenant: op.Tenant, Name: op.Name, Key: op.Key, NoFingerprint: true})
}

// check is the options', for a store that may have a lease.
func (s *Store[Tx]) check(op Op) (*claim, error) {
	c, err := s.options.check(op)
	if err != nil || s.lease == nil {
		return c, err
	}
	if s.lease.locker == nil {
		return nil, invalid("WithLease", "its locker is nil")
	}
	key, err := s.LeaseKey(op)
	if err == nil && s.lease.term.Key() != key {
		err = invalid("WithLease", fmt.Sprintf("its term is one of the key %.60q, and not of this operation's: acquire the lease on LeaseKey(op), which is %.60q", s.lease.term.Key(), key))
	}
	return c, err
}

// guard locks the lease's row, where there is a lease, until tx ends.
func (s *Store[Tx]) guard(ctx context.Context, tx Tx) error {
	if s.lease == nil {
		return nil
	}
	return s.lease.locker.Guard(ctx, tx, s.lease.term)
}

package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// termOver is the reason with which a guard refuses a term.
const termOver = "another term was granted since, or it was released, resumed or taken away"

// errStale refuses a transaction whose snapshot is older than the grant.
var errStale = errors.New("the transaction's snapshot is older than the lease: call Guard first in the transaction")

// errRestored refuses all guards of a Locker. Its tables may be another copy, in which its
// terms belong to others.
var errRestored = fmt.Errorf("%w: holdfast after-restore has run since this Locker was opened: close it and open another", ErrOtherStore)

// CheckTerms checks the terms that were passed to a guard of an owner.
func (k *Keeper) CheckTerms(owner core.Owner, terms []Term) error {
	if owner.Err != nil {
		return owner.Err
	}
	if len(terms) == 0 {
		return Invalid("terms", "there is none: give those that the transaction depends on, as lease.Term()")
	}
	for _, t := range terms {
		switch {
		case t.name == lockname.Name{} || t.token <= 0:
			return Invalid("terms", "one is the zero Term: give lease.Term()")
		case t.name.Owner != owner.ID:
			return Invalid("terms", fmt.Sprintf("one is of the owner %.40q, and the Locker is of %.40q: guard it with For of its owner", t.name.Owner, owner.ID))
		case t.store != k.Statements.ID:
			return fmt.Errorf("%w: key %.40q, token %d: guard it with the Locker that granted it, or one on the same tables", ErrOtherStore, t.Key(), t.token)
		}
	}
	return nil
}

// Guard locks the rows of terms in the caller's transaction.
func (k *Keeper) Guard(ctx context.Context, q core.Querier, terms []Term) error {
	// In the order of the keys, so that two guarded transactions do not deadlock.
	terms = slices.Clone(terms)
	slices.SortFunc(terms, func(a, b Term) int {
		return cmp.Or(a.name.Compare(b.name), cmp.Compare(a.token, b.token))
	})
	for _, t := range terms {
		if err := k.guard(ctx, q, t); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) guard(ctx context.Context, q core.Querier, t Term) error {
	s := k.Statements
	result, err := s.guards[t.Kind() == lockname.Lease].Run(ctx, q, lockstmt.TermID{Name: t.name, Attempt: t.attempt, Token: t.token}, s.ID)
	if class := s.Dialect.Classify(err); class == dialect.Retry || class == dialect.Busy {
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	if err != nil {
		return s.missing(err)
	}
	switch result {
	case lockstmt.Over:
		k.Over(t)
		return publicLost(&LostError{Key: t.Key(), Token: t.token, Reason: termOver})
	case lockstmt.Stale:
		return &holdfast.RetryError{Attempts: 1, Err: errStale}
	case lockstmt.OtherStore:
		return errRestored
	}
	return nil
}

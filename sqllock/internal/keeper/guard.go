package keeper

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
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// termOver is the reason with which a guard refuses a term.
const termOver = "another term was granted since, or it was released or taken away"

// errStale refuses a transaction whose snapshot is older than the grant.
var errStale = errors.New("the transaction's snapshot is older than the lease: call Guard first in the transaction")

// errRestored refuses all guards of a Locker. Its tables may be another copy, in which its
// terms belong to others.
var errRestored = fmt.Errorf("%w: holdfast after-restore has run since this Locker was opened: close it and open another", ErrOtherStore)

// guardStmts are the statements that guard one kind of term.
type guardStmts struct {
	guard core.Stmt
	// write also writes the row, on a cluster where a lock does not reach other nodes.
	write core.Stmt
	// stale explains why guard found no row, if guard cannot report that itself.
	stale core.Stmt
}

func compileGuards(s *Store) map[bool]guardStmts {
	l, c := &s.Dialect.Leases, &s.Dialect.Tickets
	return map[bool]guardStmts{
		true:  {guard: s.Compile("guard", l.Guard), write: s.Compile("guard write", l.GuardWrite)},
		false: {guard: s.Compile("guard ticket", c.Guard), write: s.Compile("guard ticket write", c.GuardWrite), stale: s.Compile("stale", c.Stale)},
	}
}

// CheckTerms checks the terms that were passed to a guard.
func (k *Keeper) CheckTerms(terms []Term) error {
	if len(terms) == 0 {
		return Invalid("terms", "there is none: give those that the transaction depends on, as lease.Term()")
	}
	for _, t := range terms {
		_, err := lockname.Of(lockname.Lease, t.key)
		switch {
		case t.key == "" || t.token <= 0:
			return Invalid("terms", "one is the zero Term: give lease.Term()")
		case err != nil:
			return err
		case t.store != k.Store.ID:
			return fmt.Errorf("%w: key %.40q, token %d: guard it with the Locker that granted it, or one on the same tables", ErrOtherStore, t.key, t.token)
		}
	}
	return nil
}

// Guard locks the rows of terms in the caller's transaction.
func (k *Keeper) Guard(ctx context.Context, q core.Querier, terms []Term) error {
	// In the order of the keys, so that two guarded transactions do not deadlock.
	terms = slices.Clone(terms)
	slices.SortFunc(terms, func(a, b Term) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.key, b.key), cmp.Compare(a.token, b.token))
	})
	for _, t := range terms {
		if err := k.guard(ctx, q, t); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) guard(ctx context.Context, q core.Querier, t Term) error {
	s := k.Store
	name, err := lockname.Of(t.kind, t.key)
	if err != nil {
		return err
	}
	found, fresh, err := s.guard(ctx, q, name, t)
	if class := s.Dialect.Classify(err); class == dialect.Retry || class == dialect.Busy {
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	switch {
	case err != nil:
		return s.missing(err)
	case !found:
		k.Over(t)
		return &LostError{Key: t.key, Token: t.token, Reason: termOver}
	case !fresh:
		return &holdfast.RetryError{Attempts: 1, Err: errStale}
	}
	return nil
}

// guard locks the row of one term. found reports whether the row still has this term, and fresh
// whether the transaction's snapshot shows it.
func (s *Store) guard(ctx context.Context, q core.Querier, name []byte, t Term) (found, fresh bool, err error) {
	stmts := s.guards[t.kind == lockname.Lease]
	var shown int
	var id []byte
	found, err = stmts.guard.QueryRow(ctx, q, []any{&shown, &id}, name, t.token)
	switch {
	case err != nil:
		return false, false, err
	case !found && stmts.stale.Text != "":
		var stale int
		_, err = stmts.stale.QueryRow(ctx, q, []any{&stale}, t.token)
		return stale == 1, false, err
	case !found || shown < 0: // below zero: a waiting ticket
		return false, false, nil
	case shown == 0:
		return true, false, nil
	case string(id) != s.ID:
		return true, true, errRestored
	case stmts.write.Text != "":
		_, err = stmts.write.Exec(ctx, q, name, t.token)
	}
	return true, true, err
}

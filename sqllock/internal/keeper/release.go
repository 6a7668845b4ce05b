package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Release ends the lease once. Further calls return the same result.
func (l *Lease) Release(ctx context.Context) error {
	if again, lost := l.leave(); again {
		return lost
	}
	l.releasing.Do(func() {
		ctx, op := l.keeper.StartSpan(ctx, l.lock, "release")
		defer func() { op.End(l.released, Outcome) }()
		l.released = l.kind.Release(l.keeper.cleanups.Context(ctx), l)
	})
	return l.released
}

// leave undoes one acquisition of a re-entrant lease. again is false if only one acquisition is
// left. lost is ErrLost if the lease is lost.
func (l *Lease) leave() (again bool, lost error) {
	l.keeper.Mu.Lock()
	defer l.keeper.Mu.Unlock()
	if l.again == 0 {
		l.by = nil // from now on nobody acquires it again
		return false, nil
	}
	l.again--
	l.keeper.lapse(l)
	if cause := context.Cause(l.ctx); errors.Is(cause, ErrLost) {
		return true, cause
	}
	return true, nil
}

// Finish ends the context of a released lease, and returns false if it had already ended. Mu is
// held.
func (k *Keeper) Finish(l *Lease) bool {
	k.lapse(l)
	return k.End(l, ErrReleased)
}

// Confirm reads the row of a released term if the statements' answers do not show whose term
// they ended. Only the release of a term frees the row and keeps its token. A ticket's queue
// has such a row, too, but a later ticket has moved its token. Of a lease with a handle, another
// holder may have been the one that released it.
func (k *Keeper) Confirm(ctx context.Context, l *Lease, f Freed) Freed {
	if f.Was && !l.attempt.Ambiguous || !f.Was && !f.Ambiguous {
		return f
	}
	a, err := k.Statements.HolderOf(ctx, l.attempt.Name)
	f.Was, f.Ambiguous = err == nil && a.Attempt == nil && a.Token == l.term.token && (f.Was || !l.attempt.HandedOut), true
	return f
}

// Result returns the error of a release. It is nil only if the row showed that no other term
// was granted before the release. Mu is held.
func (k *Keeper) Result(l *Lease, f Freed, err error) error {
	cause := context.Cause(l.ctx)
	switch {
	case err == nil && f.Was:
		return nil
	case errors.Is(cause, ErrLost): // regardless of the release
		return cause
	case err != nil:
		return err
	case f.Ambiguous:
		return fmt.Errorf("sqllock: lock %.40q is released, but an answer was lost, and whether token %d had been lost before is not known: %w", l.term.Key(), l.term.token, holdfast.ErrUnknown)
	}
	k.wasLost(l, trace.CauseRelease)
	return l.lost("it was not the row's any more at its release")
}

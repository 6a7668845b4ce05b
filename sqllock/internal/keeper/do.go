package keeper

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// Do acquires a lease and runs fn while it is held.
func (k *Keeper) Do(ctx context.Context, name, lock string, acquire func(ctx context.Context) (*Lease, error), fn func(ctx context.Context, l *Lease) error) (err error) {
	ctx, op := k.StartCall(ctx, name, lock)
	outcome := Outcome
	defer func() { op.End(err, outcome) }()
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	err = trace.ErrAborted // until fn returns
	release := sync.OnceValue(func() error { return lease.Release(ctx) })
	defer func() { _ = release() }()
	if err := fn(ctx, lease); err != nil {
		outcome = lease.outcomeOf
		return err
	}
	if err := release(); errors.Is(err, ErrLost) {
		return err
	}
	if cause := context.Cause(lease.ctx); cause != nil && !errors.Is(cause, ErrReleased) {
		return cause
	}
	return nil
}

// outcomeOf is Outcome for an error of a function that ran with l. What the error says about other locks
// is no outcome of l.
func (l *Lease) outcomeOf(err error) string {
	if lost := lostIn(err); lost != nil && lost.Token == l.Token() {
		return trace.Lost
	}
	return ""
}

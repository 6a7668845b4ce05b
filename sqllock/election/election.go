// Package election elects one leader among the processes that campaign for a key. A leadership
// is a lease of package sqllock: its context ends before another leader can be elected, and its
// term guards the transactions that only a leader may commit.
//
//	locks, err := sqllock.New(ctx, db)
//	err = election.New(locks.For("service"), "settlement").Run(ctx, []byte("10.0.0.7"), func(ctx context.Context, leader *election.Leader) error {
//		return settle(leader.Context())
//	})
//
// A program with many owners gives the election one of its own, as here; one with
// holdfast.Options.SingleOwner names none.
//
// The key is the key of a lease, so a lease from [sqllock.Locker.Acquire] on the same key
// excludes leaders.
package election

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Election is the election for one key.
type Election[Tx any] struct {
	locks *sqllock.Locker[Tx]
	key   string
	opts  []sqllock.AcquireOptions
}

// New returns the election for key, among the locks of locks' owner. opts are the options of the leader's lease. New does not
// access the database.
func New[Tx any](locks *sqllock.Locker[Tx], key string, opts ...sqllock.AcquireOptions) *Election[Tx] {
	return &Election[Tx]{locks: locks, key: key, opts: opts}
}

// Leader is a leadership. Its Context ends before another leader can be elected. Use its Term
// with [sqllock.Locker.Guard], and its Lease with [sqllock.Locker.InTx].
type Leader struct{ *sqllock.Lease }

// Resign ends the leadership. The next campaigning call is elected.
func (l *Leader) Resign(ctx context.Context) error { return l.Release(ctx) }

// Campaign waits until this call is elected or ctx ends. It publishes value, which may be nil.
// [Leader.SetValue] changes the value.
//
// Errors: those of [sqllock.Locker.Acquire] and [sqllock.Lease.SetValue].
func (e *Election[Tx]) Campaign(ctx context.Context, value []byte) (leader *Leader, err error) {
	inner, op := access.Locker[*keeper.Keeper](e.locks).StartCall(ctx, "election.campaign", trace.LockLease)
	defer func() { op.End(err, keeper.Acquired) }()
	if err := keeper.CheckValue(value); err != nil {
		return nil, err
	}
	lease, err := e.locks.Acquire(keeper.WithValues(inner, ctx), e.key, e.opts...)
	if err != nil {
		return nil, err
	}
	leader = &Leader{lease}
	if value != nil {
		if err := leader.SetValue(ctx, value); err != nil {
			_ = leader.Resign(ctx)
			return nil, err
		}
	}
	return leader, nil
}

// Pauses of Run, each with jitter, and how long a leadership lasts after which they begin anew.
const (
	minPause = 100 * time.Millisecond
	maxPause = 30 * time.Second
	steady   = time.Minute
)

// Run campaigns, publishes value, which may be nil, and runs fn while this process leads. It campaigns
// again when the leadership was lost, when fn returned an error, and when the database does not answer,
// after a pause of 100 ms that doubles up to 30 s; after a leadership of a minute the pauses begin anew.
// fn has two contexts, as in [sqllock.Locker.Do]: its ctx is that of the call, and leader.Context() ends with
// the leadership and, without a [sqllock.AcquireOptions] Reentry, with ctx.
//
// Run returns nil once fn has returned nil in a leadership that lasted. Errors: ctx's cause; those that no
// further campaign mends: [holdfast.ErrInvalid], [holdfast.ErrSchema], [holdfast.ErrDenied],
// [sqllock.ErrClosed], [sqllock.ErrOtherStore]. An error of fn is in the trace of its call lease.do.
func (e *Election[Tx]) Run(ctx context.Context, value []byte, fn func(ctx context.Context, leader *Leader) error) error {
	if err := keeper.CheckValue(value); err != nil {
		return err
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval, pause.Multiplier = minPause, maxPause, 2
	for {
		led, since := false, time.Now()
		err := e.locks.Do(ctx, e.key, func(ctx context.Context, lease *sqllock.Lease) error {
			if value != nil {
				if err := lease.SetValue(ctx, value); err != nil {
					return err
				}
			}
			led, since = true, time.Now()
			return fn(ctx, &Leader{lease})
		}, e.opts...)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, !led && permanent(err):
			return err
		case led && time.Since(since) >= steady:
			pause.Reset()
		}
		if err := core.Sleep(ctx, pause.NextBackOff()); err != nil {
			return err
		}
	}
}

// permanent reports whether no further campaign can succeed after err.
func permanent(err error) bool {
	for _, p := range []error{holdfast.ErrInvalid, holdfast.ErrSchema, holdfast.ErrDenied, sqllock.ErrClosed, sqllock.ErrOtherStore} {
		if errors.Is(err, p) {
			return true
		}
	}
	return false
}

// Leader reads the present leader. It returns false if there is none.
func (e *Election[Tx]) Leader(ctx context.Context) (sqllock.Info, bool, error) {
	info, found, err := e.locks.Inspect(ctx, e.key)
	return info, found && info.Held, err
}

// Observe yields the present leader, and then every change of the leader, its holder or its value. An Info that is
// not Held means that there is no leader. It reads twice a second, on PostgreSQL also when a leader
// resigns, and goes on after errors as [sqllock.Locker.Watch] does. It may miss leaders and values that
// do not last until the next read.
//
// Errors: those of [sqllock.Locker.Watch].
func (e *Election[Tx]) Observe(ctx context.Context) iter.Seq2[sqllock.Info, error] {
	return func(yield func(sqllock.Info, error) bool) {
		var last *sqllock.Info
		of, _ := lockname.Parse(e.locks.Owner(), lockname.Lease.Row(e.key))
		err := access.Locker[*keeper.Keeper](e.locks).Watch(ctx, of, func(ctx context.Context) (bool, error) {
			info, leads, err := e.Leader(ctx)
			if errors.Is(err, holdfast.ErrInvalid) {
				yield(info, err)
				return false, nil
			}
			if err != nil {
				return true, err
			}
			if !leads {
				info = sqllock.Info{Owner: e.locks.Owner(), Key: e.key}
			}
			same := last != nil && info.Token == last.Token && info.Holder == last.Holder && bytes.Equal(info.Value, last.Value)
			last = &info
			return same || yield(info, nil), nil
		})
		if err != nil {
			yield(sqllock.Info{}, err)
		}
	}
}

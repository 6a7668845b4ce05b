package sqllock

import (
	"bytes"
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/internal/trace"
)

// Bounds of how often an election is observed.
const (
	DefaultObserve = 500 * time.Millisecond
	MinObserve     = 10 * time.Millisecond
)

// Election elects one leader among those who campaign for a key, which is that
// of a lease.
type Election[Tx any] struct {
	locker *Locker[Tx]
	key    string
	opts   []Option
}

// Election names an election; opts are those of the leader's lease.
func (l *Locker[Tx]) Election(key string, opts ...Option) *Election[Tx] {
	return &Election[Tx]{locker: l, key: key, opts: opts}
}

// Leader is a leadership. Its Context ends before anybody else can be elected;
// its Term is for Guard, in each transaction that only a leader may commit.
type Leader struct{ *Lease }

// Campaign waits until this call is elected, or ctx ends, and proclaims value,
// which may be nil.
//
// Errors: those of [Locker.Acquire] and [Lease.Say].
func (e *Election[Tx]) Campaign(ctx context.Context, value []byte) (leader *Leader, err error) {
	inner, op := e.locker.leases.tell(ctx, "election.campaign", trace.LockLease)
	defer func() { op.End(err, acquired) }()
	if err := checkValue(value); err != nil {
		return nil, err
	}
	lease, err := e.locker.Acquire(inner, e.key, withValues(ctx, e.opts)...)
	if err != nil {
		return nil, err
	}
	leader = &Leader{lease}
	if value != nil {
		if err := leader.Proclaim(ctx, value); err != nil {
			_ = leader.Resign(ctx)
			return nil, err
		}
	}
	return leader, nil
}

// Proclaim changes what observers see.
func (l *Leader) Proclaim(ctx context.Context, value []byte) error { return l.Say(ctx, value) }

// Resign ends the leadership; the next of those who campaign is elected.
func (l *Leader) Resign(ctx context.Context) error { return l.Release(ctx) }

// Leader reads who leads; false when nobody does.
func (e *Election[Tx]) Leader(ctx context.Context) (Info, bool, error) {
	info, found, err := e.locker.Inspect(ctx, e.key)
	return info, found && info.Held, err
}

// Observe yields the leader of now, and then every leader and proclamation that
// it finds by looking at each interval (0 is [DefaultObserve], at least
// [MinObserve]); an Info that is not Held is nobody. It may miss those that were
// short. It ends with ctx and at the first error, which it yields.
func (e *Election[Tx]) Observe(ctx context.Context, every time.Duration) iter.Seq2[Info, error] {
	if every == 0 {
		every = DefaultObserve
	}
	return func(yield func(Info, error) bool) {
		ticker := time.NewTicker(max(every, MinObserve))
		defer ticker.Stop()
		var last Info
		for first := true; ; first = false {
			info, leads, err := e.Leader(ctx)
			if ctx.Err() != nil {
				return
			}
			if !leads {
				info = Info{Key: e.key}
			}
			if first || err != nil || info.Token != last.Token || !bytes.Equal(info.Value, last.Value) {
				if !yield(info, err) || err != nil {
					return
				}
			}
			last = info
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

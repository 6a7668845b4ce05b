package keeper

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Term is one grant of a lock.
type Term struct {
	name    lockname.Name
	token   int64
	store   string
	attempt AttemptID // that has it; zero for any, and in a ticket's, which no other attempt can have
}

// covers reports whether t is the term o, or that of any holder of it.
func (t Term) covers(o Term) bool {
	if t.attempt == (AttemptID{}) {
		o.attempt = t.attempt
	}
	return t == o
}

// Owner returns the owner of the key.
func (t Term) Owner() string { return t.name.Owner }

// Key returns the locked key.
func (t Term) Key() string { return t.name.Key() }

// Token returns the fencing token.
func (t Term) Token() int64 { return t.token }

// Kind returns the kind of the lock.
func (t Term) Kind() lockname.Kind { return t.name.Kind() }

// TermOf returns the term of a lock with a token, in the keeper's tables. It returns the zero Term,
// which a guard refuses, for a key that no lock can have.
func (k *Keeper) TermOf(kind lockname.Kind, owner core.Owner, key string, token int64) Term {
	name, err := lockname.Of(kind, owner, key)
	if err != nil {
		return Term{}
	}
	return Term{name: name, token: token, store: k.Statements.ID}
}

// Lease is one term while this process trusts it.
type Lease struct {
	attempt Attempt

	keeper *Keeper
	kind   Terms
	lock   string // as tracers know it
	margin time.Duration
	once   bool // is not renewed
	by     any  // who may acquire it again: see AcquireOptions.Reentry
	term   Term
	ctx    context.Context // ends with the lease
	work   exact           // within Do it also ends with the call's context
	values values
	cancel context.CancelCauseFunc
	timer  *time.Timer

	releasing sync.Once
	released  error

	since time.Time // when it was requested, or was granted from a queue

	// Under the keeper's Mu:
	live       bool
	granted    bool          // false for a ticket that waits
	again      int           // how often its holder acquired it beyond the first time
	until      time.Time     // the end of the trust window: see setUntil
	renewError error         // of the last renewal
	wanted     chan struct{} // see Wanted; nil until it is asked for
	locked     bool          // the last renewal waited for the row in vain: the next one is alone

	trusted atomic.Int64 // until of a granted lease, since began: exact.Err takes no lock to read it
}

// began is a moment with a monotonic clock reading.
var began = time.Now()

// setUntil moves the end of the trust window. Mu is held.
func (l *Lease) setUntil(until time.Time) {
	l.until = until
	if l.granted {
		l.trusted.Store(int64(until.Sub(began)))
	}
}

// values are those of a context, without its end.
type values struct{ context.Context }

func (values) Deadline() (at time.Time, ok bool) { return at, false }
func (values) Done() <-chan struct{}             { return nil }
func (values) Err() error                        { return nil }

// Ended returns the cause if ctx has ended. Mu is not held: ctx may be that of a lease.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// exact is the context of a lease. Its Err reads the clock: a busy machine, or one that was
// stopped, runs the timer late, and another process may have the lock by then.
type exact struct {
	context.Context

	lease *Lease
}

// Err implements context.Context. It takes Mu, to end the lease.
func (e *exact) Err() error {
	if err := e.Context.Err(); err != nil {
		return err
	}
	if end := e.lease.trusted.Load(); end != 0 && int64(time.Since(began)) >= end {
		e.lease.expire()
	}
	return e.Context.Err()
}

// NewLease creates the lease of an attempt that was sent at sent, with its contexts. The caller
// must pass it to Keep or KeepWaiting.
func (k *Keeper) NewLease(kind Terms, token int64, lock string, a Attempt, s Settings, sent time.Time) *Lease {
	l := &Lease{
		attempt: a, keeper: k, kind: kind, lock: lock, margin: s.Margin, once: s.Once, by: s.By,
		live: true, until: sent.Add(s.TTL - s.Margin), term: Term{name: a.Name, token: token, store: k.Statements.ID},
	}
	if lock == trace.LockLease {
		l.term.attempt = a.ID
	}
	l.values = values{s.Values}
	l.ctx, l.cancel = context.WithCancelCause(&l.values)
	inner := l.ctx
	if s.Within != nil && s.By == nil { // else the calls that share the lease have contexts of their own
		both, cancel := context.WithCancelCause(l.ctx)
		stop := context.AfterFunc(s.Within, func() { cancel(context.Cause(s.Within)) })
		context.AfterFunc(l.ctx, func() { stop() })
		inner = both
	}
	l.work = exact{inner, l}
	return l
}

// Keep starts tracking a granted lease. If its trust window is already over, its session was lost
// or the keeper is closed, Keep abandons it and returns false. Mu is held.
func (k *Keeper) Keep(l *Lease) bool {
	window := time.Until(l.until)
	if k.Closed || window <= 0 || k.orphaned(l) {
		k.Abandon(l.kind, l.attempt)
		l.cancel(ErrLost)
		return false
	}
	k.held[l] = struct{}{}
	l.granted, l.since = true, l.until.Add(l.margin-l.attempt.TTL)
	l.setUntil(l.until)
	k.noteGranted(l)
	l.timer = time.AfterFunc(window, l.expire)
	if !l.once {
		k.renewal(l.attempt.TTL).Set(l, l.since.Add(l.attempt.TTL/renewPart))
	}
	return true
}

// KeepWaiting starts the renewal of a waiting ticket, which was sent at sent. The ticket's
// trust window begins when it is granted, so its timer is stopped. Mu is held.
func (k *Keeper) KeepWaiting(l *Lease, sent time.Time) {
	k.held[l] = struct{}{}
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	k.renewal(l.attempt.TTL).Set(l, sent.Add(l.attempt.TTL/renewPart))
}

// Grant starts the trust window of a ticket. Mu is held.
func (k *Keeper) Grant(l *Lease) {
	l.granted, l.since = true, time.Now()
	l.setUntil(l.until)
	k.noteGranted(l)
	l.timer.Reset(time.Until(l.until))
	if l.once {
		k.renewal(l.attempt.TTL).Drop(l)
	}
}

// LoseOrphan ends a ticket whose session was lost before its answer came. Mu is held.
func (k *Keeper) LoseOrphan(l *Lease) {
	if k.orphaned(l) {
		k.Lose(l, trace.CauseConnection, sessionLost)
	}
}

// HandOut records that a handle of the lease is made. It returns the cause if the lease has ended.
func (l *Lease) HandOut() error {
	l.keeper.Mu.Lock()
	defer l.keeper.Mu.Unlock()
	l.keeper.lapse(l)
	if !l.live {
		return context.Cause(l.ctx)
	}
	l.attempt.HandedOut = true
	return nil
}

// Resumed ends the lease of an attempt whose term another attempt has now.
func (k *Keeper) Resumed(from AttemptID) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for l := range k.held {
		if l.attempt.ID == from {
			k.Lose(l, trace.CauseTaken, "its handle was resumed")
		}
	}
}

// Over ends a lease whose term is over in the database.
func (l *Lease) Over() { l.keeper.Over(l.term) }

// Live reports whether the lease's context has not ended. Mu is held.
func (l *Lease) Live() bool { return l.live }

// Trusted reports whether neither the lease's context nor its trust window has ended. Mu
// is held.
func (l *Lease) Trusted() bool { return l.live && time.Now().Before(l.until) }

// Granted is false for a waiting ticket. Mu is held.
func (l *Lease) Granted() bool { return l.granted }

// Since returns when a lease was requested, or was granted from a queue.
func (l *Lease) Since() time.Time { return l.since }

// Until returns the end of the trust window. Mu is held.
func (l *Lease) Until() time.Time { return l.until }

// Key returns the locked key.
func (l *Lease) Key() string { return l.term.Key() }

// Token returns the fencing token.
func (l *Lease) Token() int64 { return l.term.token }

// Term returns the key and the token.
func (l *Lease) Term() Term { return l.term }

// Statements returns those of the tables that have the lease's row.
func (l *Lease) Statements() *Statements { return l.keeper.Statements }

// Attempt returns the attempt to which the lease was granted.
func (l *Lease) Attempt() *Attempt { return &l.attempt }

// Keeper returns the keeper that tracks the lease.
func (l *Lease) Keeper() *Keeper { return l.keeper }

// Context returns the context for work under the lease.
func (l *Lease) Context() context.Context { return &l.work }

// Again counts one more acquisition by the holder of a re-entrant lease. It returns false if by
// may not acquire it again, or if it has ended. Mu is held.
func (l *Lease) Again(by any) bool {
	if by == nil || l.by != by {
		return false
	}
	if l.keeper.lapse(l); !l.live {
		return false
	}
	l.again++
	return true
}

// Prolong moves the end of the trust window to the margin before expiry, the earliest time at
// which the term ends. It never shortens the window. Mu is held, and the lease is live.
func (l *Lease) Prolong(expiry time.Time) {
	if until := expiry.Add(-l.margin); until.After(l.until) {
		l.setUntil(until) // the timer reads it when it fires
	}
}

func (l *Lease) lost(reason string) error {
	return publicLost(&LostError{Key: l.term.Key(), Token: l.term.token, Reason: reason, Err: l.renewError})
}

// Package keeper tracks the terms that one process was granted, of leases and of tickets: their
// trust windows, their renewal, and the release of abandoned terms.
package keeper

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/schedule"
)

// Terms is one kind of term: leases, or tickets in a queue. It runs their statements and tracks
// what the process knows about their keys.
type Terms interface {
	// Renew moves the expiry of live terms and returns which it renewed. Remaining returns how
	// long terms last, without the terms that have ended.
	Renew(ctx context.Context, ttl time.Duration, batch []*Lease) (map[AttemptID]bool, error)
	Remaining(ctx context.Context, batch []*Lease) (map[AttemptID]time.Duration, error)
	// Release ends a term and hands the lock to the next waiter.
	Release(ctx context.Context, l *Lease) error
	// Sweep ends abandoned terms, and reports each with Keeper.Swept.
	Sweep(ctx context.Context, due []Abandoned)
	// Ended forgets a lease whose context has ended. The keeper's Mu is held.
	Ended(l *Lease, lost bool)
	// Notified says that another process has freed a lock, or granted it to an attempt, and Missed that one
	// may have. The keeper's Mu is held.
	Notified(name lockname.Name, granted []byte)
	Missed()
	// Woken says that a process may have freed a lock that it had. The keeper's Mu is held.
	Woken(p Process)
	// WaitsHere reports whether another call of this process waits for the lock of a lease, if that is known. The
	// keeper's Mu is held. Waited returns those of the locks of one owner that calls wait for.
	WaitsHere(l *Lease) bool
	Waited(ctx context.Context, names []lockname.Name) (map[lockname.Name]bool, error)
	// Close ends the waiting of all calls. The keeper's Mu is held. Wait waits for running
	// statements, at most until ctx ends. Stop waits for the kind's goroutines after the
	// keeper's Ctx has ended.
	Close()
	Wait(ctx context.Context)
	Stop()
}

// Keeper tracks the terms of one process.
type Keeper struct {
	Statements *Statements
	Options    Options
	Ctx        context.Context // of background work
	stop       context.CancelFunc
	// Notifier and Waker wake the waiters of other processes: each engine has one of them, or none.
	Notifier *Notifier
	Waker    *Waker
	// Liveness shows other processes that this one has ended.
	Liveness *Liveness
	// Pending counts attempts that may still be granted, or that must still be released.
	Pending atomic.Int64
	// Turn is for tests: how long, at least, the process hands a lock over among its own waiters
	// while others wait for it.
	Turn time.Duration

	cleanups  core.Cleanups // of releases
	abandoned *schedule.Schedule[Abandoned]
	wants     *schedule.Schedule[*Lease] // when to read whether calls wait for them
	renewSize atomic.Int64               // how many leases one statement renews
	// watchEvery is core.WatchEvery, except in tests.
	watchEvery time.Duration

	// Mu guards the fields below, the state of the leases, and the state of each Kind.
	Mu       Mutex
	Closed   bool
	kinds    []Terms
	held     map[*Lease]struct{}
	renewals map[int]*schedule.Schedule[*Lease] // by the size of the TTL
	watches  map[chan struct{}]lockname.Name    // that a notification wakes
}

// New returns a keeper without kinds.
func New(s *Statements, o Options, t *trace.Tracer, listen Listen, side Side) *Keeper {
	k := &Keeper{Statements: s, Options: o, held: map[*Lease]struct{}{}, renewals: map[int]*schedule.Schedule[*Lease]{}, watches: map[chan struct{}]lockname.Name{}, watchEvery: core.WatchEvery}
	k.Mu.trace = t
	k.renewSize.Store(renewBatch)
	k.Ctx, k.stop = context.WithCancel(context.Background())
	k.abandoned = schedule.New(k.Ctx, 0, k.sweep)
	k.wants = schedule.New(k.Ctx, wantedEvery, k.lookForWaiters)
	k.Notifier, k.Waker, k.Liveness = newNotifier(k, listen), newWaker(k, side), newLiveness(k, side)
	return k
}

func (k *Keeper) notified(name lockname.Name, granted []byte) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, kind := range k.kinds {
		kind.Notified(name, granted)
	}
	k.wakeWatches(name)
}

// woken says that process p may have freed a lock.
func (k *Keeper) woken(p Process) {
	k.Liveness.suspect(p)
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, kind := range k.kinds {
		kind.Woken(p)
	}
}

// missed makes all waiters poll: a notification may have been missed while the process did not
// listen.
func (k *Keeper) missed() {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, kind := range k.kinds {
		kind.Missed()
	}
	k.wakeWatches(lockname.Name{})
}

// Of returns the keeper's kind of type K. The first call creates it with open.
func Of[K Terms](k *Keeper, open func() K) K {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, kind := range k.kinds {
		if found, ok := kind.(K); ok {
			return found
		}
	}
	kind := open()
	k.kinds = append(k.kinds, kind)
	return kind
}

// Waiting returns how many calls wait in the queues of this process. Tests wait for it.
func (k *Keeper) Waiting() (n int) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, kind := range k.kinds {
		if queues, has := kind.(interface{ Waiting() int }); has {
			n += queues.Waiting()
		}
	}
	return n
}

// expire ends the lease once its trust window has ended.
func (l *Lease) expire() {
	l.keeper.Mu.Lock()
	defer l.keeper.Mu.Unlock()
	if rest := time.Until(l.until); rest > 0 { // it was renewed in between
		l.timer.Reset(rest)
		return
	}
	l.keeper.lapse(l)
}

// lapse ends a lease as lost if its trust window is over. In a process that was stopped, a
// release may run before the timer fires. Mu is held.
func (k *Keeper) lapse(l *Lease) {
	if time.Until(l.until) <= 0 {
		k.Lose(l, trace.CauseExpired, "its time was over before a renewal was committed")
	}
}

// Lose ends a lease as lost. Mu is held.
func (k *Keeper) Lose(l *Lease, cause, reason string) {
	if l.live {
		k.end(l, l.lost(reason), true)
		k.wasLost(l, cause)
	}
}

// Over ends the lease of a term that a guard refused.
func (k *Keeper) Over(t Term) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for l := range k.held {
		if t.covers(l.term) {
			k.Lose(l, trace.CauseTaken, termOver)
		}
	}
}

// End ends the lease's context, and returns false if it had already ended. Mu is held.
func (k *Keeper) End(l *Lease, cause error) bool { return k.end(l, cause, false) }

func (k *Keeper) end(l *Lease, cause error, lost bool) bool {
	if !l.live {
		return false
	}
	l.live = false
	l.timer.Stop()
	delete(k.held, l)
	k.renewal(l.attempt.TTL).Drop(l)
	l.cancel(cause)
	k.ended(l, cause)
	l.kind.Ended(l, lost)
	return true
}

// Close ends all leases, releases those that are held, and waits for background work, at most
// until ctx ends or core.CleanupTimeout has passed.
func (k *Keeper) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	k.Mu.Lock()
	k.Closed = true
	var held []*Lease
	for l := range k.held {
		held = append(held, l)
		l.again = 0 // a release by Close is the last one
		k.lapse(l)
		k.End(l, ErrClosed)
	}
	kinds := slices.Clone(k.kinds)
	for _, kind := range kinds {
		kind.Close()
	}
	k.Mu.Unlock()
	for _, kind := range kinds {
		kind.Wait(ctx)
	}
	var first error
	for _, l := range held {
		if !l.granted || l.attempt.HandedOut { // a ticket, which was abandoned when it ended; a lease to be resumed
			continue
		}
		// A release has a bound of its own, which is longer than what is left of ctx.
		if _, err := core.Bounded(ctx, func() error { return l.Release(ctx) }, nil); err != nil && first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	for k.Pending.Load() > 0 && ctx.Err() == nil {
		time.Sleep(2 * time.Millisecond)
	}
	k.stop()
	// A driver may not end a statement with its context.
	if _, err := core.Bounded(ctx, func() error { k.stopped(kinds); return nil }, nil); err != nil && first == nil {
		first = err
	}
	return first
}

// stopped waits for the goroutines that stop has ended.
func (k *Keeper) stopped(kinds []Terms) {
	for _, kind := range kinds {
		kind.Stop()
	}
	k.Notifier.wait()
	k.Waker.wait()
	k.Liveness.wait()
	k.abandoned.Wait()
	k.wants.Wait()
	for _, r := range k.renewals { // there are no new ones any more
		r.Wait()
	}
}

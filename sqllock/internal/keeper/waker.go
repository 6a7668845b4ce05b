package keeper

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

const (
	// recent is for how long a lock counts as one that other processes want.
	recent = 10 * time.Second
	// listenFor is for how long a process listens after a poll that found the lock held.
	listenFor = 250 * time.Millisecond
	// firstUnheld and mostUnheld are the pauses after a named lock that its process does not hold.
	firstUnheld, mostUnheld = 20 * time.Millisecond, time.Second
	// wakeBound bounds a statement of a Waker. The server bounds it, too, unless it is gone.
	wakeBound = 75 * time.Second
	// firstRetry and mostRetry are the pauses after an error.
	firstRetry, mostRetry = time.Second, time.Minute
	// sideConnections is how many connections of the pool a Waker uses.
	sideConnections = 2
)

// Side runs f on a dedicated connection, for as long as f runs. If the pool cannot spare n connections, it
// returns core.ErrNoListener.
type Side func(ctx context.Context, n int, f func(q core.Querier) error) error

// Waker wakes the waiting calls of other processes when a lock is free, on engines that have named
// locks and no notifications. A process whose locks are wanted by others holds one named lock, and
// releases it for a moment whenever it has freed such a lock. A process that waits asks for
// the named lock of the process that has its lock; the server answers when it is released, also
// because its connection has ended. The holder uses one connection, the one that waits another one.
// On engines with notifications, a process waits so for the end of a Session only.
//
// Polling continues, so a session that is cut, or a proxy with one server for the holder and
// another one for the waiting process, costs one poll interval.
type Waker struct {
	k                 *Keeper
	side              Side
	hold, wake, await core.Stmt
	wakesOthers       bool          // the engine wakes by named locks
	listenFor         time.Duration // listenFor, except in tests

	wakes   chan struct{}
	never   atomic.Bool // the engine or the handle cannot do it
	holds   atomic.Bool // the process has its named lock
	hears   atomic.Bool // a statement waits for the named lock of another process
	changed chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex
	stays    bool                        // the named lock is held though nobody is known to want a lock
	hot      map[lockname.Name]time.Time // the locks that others want, and since when that is known
	holder   connection
	listener connection
	target   Process // to listen to
	sought   time.Time
}

// connection is the state of one of a Waker's connections.
type connection struct {
	open  bool
	after time.Time // do not open it before
	pause time.Duration
}

var (
	errUnheld    = errors.New("sqllock: the session has no named lock")
	errSmallPool = errors.New("sqllock: the pool cannot spare two connections for waking other processes and being woken, so calls that wait for another process poll, every 50 ms at the latest: let it have at least eight")
)

func newWaker(k *Keeper, side Side) *Waker {
	s := k.Statements.Dialect.Leases.Wake
	w := &Waker{
		k: k, side: side, listenFor: listenFor, hot: map[lockname.Name]time.Time{},
		hold: k.Statements.Compile("hold", s.Hold), wake: k.Statements.Compile("wake", s.Wake), await: k.Statements.Compile("await", s.Await),
		wakesOthers: s.Hold != "", wakes: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
	w.never.Store(s.Await == "")
	if !w.wakesOthers { // polls are rarer where a release notifies
		w.listenFor = idleListener
	}
	return w
}

// Named returns the name of a process's named lock. Names are those of the whole server.
func Named(p Process) string { return "holdfast_" + hex.EncodeToString(p[:]) }

// ListenFor sets for how long a process listens after a poll, for tests in which polls are rare.
func (w *Waker) ListenFor(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listenFor = d
}

// Works reports whether other processes are woken.
func (w *Waker) Works() bool { return w.holds.Load() }

// Hears reports whether this process is woken.
func (w *Waker) Hears() bool { return w.hears.Load() }

// Able reports whether the engine and the handle can wake other processes.
func (w *Waker) Able() bool { return w.wakesOthers && !w.never.Load() }

// Want records that other processes want a lock which this process has.
func (w *Waker) Want(name lockname.Name) {
	if !w.Able() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hot[name] = time.Now()
	w.start(&w.holder, w.runHolder)
}

// Stay makes this process hold its named lock though nobody is known to want a lock of it: if its end frees its
// locks, the end then also wakes a process that has only begun to wait.
func (w *Waker) Stay(stays bool) {
	if !w.Able() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stays = stays; stays {
		w.start(&w.holder, w.runHolder)
	}
}

// Freed wakes other processes if they want the lock, which this process has freed.
func (w *Waker) Freed(name lockname.Name) {
	if !w.holds.Load() {
		return
	}
	w.mu.Lock()
	at, hot := w.hot[name]
	w.mu.Unlock()
	if hot && time.Since(at) < recent {
		signal(w.wakes)
	}
}

// Await says that a call waits for a lock that process p has.
func (w *Waker) Await(p Process) {
	if w.never.Load() || p == (Process{}) || p == w.k.Identity() || !w.wakesOthers && !p.InSession() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.target != p || time.Since(w.sought) >= w.listenFor {
		signal(w.changed)
	}
	w.target, w.sought = p, time.Now()
	w.start(&w.listener, w.runListener)
}

// start runs a connection, unless it runs. w.mu is held.
func (w *Waker) start(s *connection, run func(ctx context.Context, q core.Querier) error) {
	if s.open || time.Now().Before(s.after) || w.k.Ctx.Err() != nil {
		return
	}
	s.open = true
	w.running.Go(func() {
		err := w.side(w.k.Ctx, sideConnections, func(q core.Querier) error { return run(w.k.Ctx, q) })
		small := errors.Is(err, core.ErrNoListener)
		switch {
		case small && !w.never.Swap(true) && w.wakesOthers:
			w.k.failed(errSmallPool)
		case err != nil && !small:
			w.k.failed(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		s.open = false
		switch {
		case err == nil:
			s.pause = 0
		case !small:
			s.pause = min(max(2*s.pause, firstRetry), mostRetry)
			s.after = time.Now().Add(s.pause)
		}
	})
}

// wait waits until the goroutines have ended; the keeper's Ctx has ended.
func (w *Waker) wait() { w.running.Wait() }

// runHolder holds this process's named lock while others want its locks.
func (w *Waker) runHolder(ctx context.Context, q core.Querier) error {
	self := w.k.Identity()
	name := Named(self)
	var released, got *int64
	if err := answer(ctx, w.hold, q, name, &got); err != nil || got == nil || *got != 1 {
		return errors.Join(err, errUnheld)
	}
	w.holds.Store(true)
	defer w.holds.Store(false)
	idle := time.NewTicker(time.Second)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-idle.C:
			if w.cold() || w.k.Identity() != self {
				return nil
			}
			if err := w.check(ctx, q); err != nil {
				return err
			}
		case <-w.wakes:
			if err := answer(ctx, w.wake, q, name, &released, &got); err != nil || released == nil || *released != 1 || got == nil || *got != 1 {
				return errors.Join(err, errUnheld)
			}
		}
	}
}

// check finds out whether the connection of a named lock that stays still works: an idle one does not say that it was
// lost, and nobody may want to be woken for long.
func (w *Waker) check(ctx context.Context, q core.Querier) error {
	w.mu.Lock()
	stays := w.stays
	w.mu.Unlock()
	if !stays {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, confirmBound)
	defer cancel()
	var connection *int64
	_, err := w.k.Liveness.confirm.QueryRow(ctx, q, []any{&connection})
	return err
}

// awaited returns the lock to wait for: the one that wakes, or that of the session.
func (w *Waker) awaited(p Process) string {
	if w.wakesOthers {
		return Named(p)
	}
	return live(p)
}

// cold forgets the locks that no other process has wanted recently, and reports whether there are
// no others, and the named lock does not stay.
func (w *Waker) cold() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, at := range w.hot {
		if time.Since(at) >= recent {
			delete(w.hot, name)
		}
	}
	return len(w.hot) == 0 && !w.stays
}

// runListener waits for the named locks of the processes that have the locks for which calls wait.
func (w *Waker) runListener(ctx context.Context, q core.Querier) error {
	unheld := firstUnheld
	for {
		w.mu.Lock()
		p, ago, listenFor := w.target, time.Since(w.sought), w.listenFor
		w.mu.Unlock()
		pause := time.Second
		switch {
		case ago > idleListener:
			return nil
		case ago < listenFor:
			var held, got, released *int64
			w.hears.Store(true)
			err := answer(ctx, w.await, q, w.awaited(p), &held, &got, &released)
			w.hears.Store(false)
			switch {
			case ctx.Err() != nil:
				return err // it ends the process's work
			case w.k.Statements.Dialect.Classify(err) == dialect.Busy: // the lock is still held
				continue
			case err != nil:
				return err
			case got == nil: // the statement was ended
				return errUnheld
			case held == nil || *held == 0:
				pause, unheld = unheld, min(2*unheld, mostUnheld)
			default:
				if unheld = firstUnheld; *got == 1 {
					w.k.woken(p)
				}
				continue
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			unheld = firstUnheld
		case <-time.After(pause):
		}
	}
}

// answer runs a statement that answers with numbers.
func answer(ctx context.Context, stmt core.Stmt, q core.Querier, name string, numbers ...**int64) error {
	ctx, cancel := context.WithTimeout(ctx, wakeBound)
	defer cancel()
	dest := make([]any, len(numbers))
	for i := range numbers {
		dest[i] = numbers[i]
	}
	_, err := stmt.QueryRow(ctx, q, dest, name)
	return err
}

// signal sends to a channel of capacity one, unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

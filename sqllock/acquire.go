package sqllock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Acquire waits for the lock on key until ctx ends. ctx bounds the wait and does not end the
// lease. The goroutines of one Locker get the lock in the order of their calls. Between
// processes there is no order: see package fairlock.
//
// Errors: ctx's cause; [ErrClosed]; [holdfast.ErrInvalid] (the key is empty or longer than
// [MaxKey], the TTL is out of bounds); [holdfast.ErrRetry]; the driver's. After an error the
// lock is not held: a grant whose answer was lost is released in the background.
func (l *Locker[Tx]) Acquire(ctx context.Context, key string, opts ...AcquireOptions) (*Lease, error) {
	s, err := l.settings(ctx, opts)
	lease, err := l.leases.acquire(ctx, l.owner, key, s, err)
	return (*Lease)(lease), err
}

// acquire is Acquire with settings. wrong is an error in the options. A call that finds no other call in this
// process takes the lock at once; all others join the queue of its key.
func (m *leases) acquire(ctx context.Context, owner core.Owner, key string, s keeper.Settings, wrong error) (lease *keeper.Lease, err error) {
	ctx, op := m.k.StartSpan(ctx, trace.LockLease, "acquire")
	defer func() { op.End(err, keeper.Acquired) }()
	name, err := check(ctx, owner, key, wrong)
	if err != nil {
		return nil, err
	}
	w, lease, err := m.acquireFree(ctx, name, s)
	if lease != nil || err != nil {
		return lease, err
	}
	if w == nil {
		if w = m.join(name, s); w.asking {
			if lease, err = m.ask(ctx, w); lease != nil || err != nil {
				return lease, err
			}
		}
	}
	return m.wait(ctx, w) // another call of this process, or another process, has the lock
}

// acquireFree takes a lock that no call of this process has or waits for, unless it would have to wait for
// a batch. If this process has used the lock's row before, that is one statement. Without a lease and an
// error the call waits as w, the first in the queue of its key; without a w it has to join one.
func (m *leases) acquireFree(ctx context.Context, name lockname.Name, s keeper.Settings) (w *waiter, lease *keeper.Lease, err error) {
	select {
	case m.asking <- struct{}{}:
		defer func() { <-m.asking }()
	default: // as many as may ask at once
		return nil, nil, nil
	}
	m.k.Mu.Lock()
	place, room := uint64(0), false
	if !m.k.Closed && m.queues[name] == nil {
		place, room = m.statements.taking.Enter()
	}
	if !room {
		m.k.Mu.Unlock()
		return nil, nil, nil
	}
	w = m.queue(name).add(s) // other calls wait behind it
	w.asking = true
	m.k.Pending.Add(1) // Close waits for it
	m.k.Mu.Unlock()
	defer m.k.Pending.Add(-1)

	a := lockstmt.NewAttempt(name, m.k.NewAttemptID(), s.TTL)
	sent := time.Now() // before the request leaves
	v, err := m.statements.acquireIn(ctx, place, a)
	if err != nil || !v.Won || v.Ambiguous {
		v, err = m.statements.acquire(ctx, a, &tried{v, err})
	}
	lease, v, err = m.granted(ctx, a, s, sent, v, err)
	return w, m.asked(w, lease, v, err), err
}

// attempt asks the database once, and begins the lease if the lock was granted.
func (m *leases) attempt(ctx context.Context, name lockname.Name, s keeper.Settings) (*keeper.Lease, keeper.AttemptResult, error) {
	return m.attemptBy(ctx, name, s, func(ctx context.Context, a keeper.Attempt) (keeper.AttemptResult, error) {
		return m.statements.acquire(ctx, a, nil)
	})
}

// takeEnded takes the lock over from an attempt of a process that has ended, if it still has it.
func (m *leases) takeEnded(ctx context.Context, name lockname.Name, s keeper.Settings, ended keeper.AttemptID) (*keeper.Lease, keeper.AttemptResult, error) {
	return m.attemptBy(ctx, name, s, func(ctx context.Context, a keeper.Attempt) (keeper.AttemptResult, error) {
		v, ambiguous, err := m.statements.handOver(ctx, ended, a)
		v.Ambiguous = ambiguous
		return v, err
	})
}

// attemptBy makes an attempt with one of the statements that grant.
func (m *leases) attemptBy(ctx context.Context, name lockname.Name, s keeper.Settings, ask func(context.Context, keeper.Attempt) (keeper.AttemptResult, error)) (*keeper.Lease, keeper.AttemptResult, error) {
	if !m.depart() {
		return nil, keeper.AttemptResult{}, ErrClosed
	}
	defer m.k.Pending.Add(-1)
	a := lockstmt.NewAttempt(name, m.k.NewAttemptID(), s.TTL)
	sent := time.Now() // before the request leaves
	v, err := ask(ctx, a)
	return m.granted(ctx, a, s, sent, v, err)
}

// granted begins the lease of an attempt, which was sent at sent, if the lock was granted to it.
func (m *leases) granted(ctx context.Context, a keeper.Attempt, s keeper.Settings, sent time.Time, v keeper.AttemptResult, err error) (*keeper.Lease, keeper.AttemptResult, error) {
	if err != nil || !v.Won {
		return nil, v, m.notGranted(ctx, a, v, err)
	}
	a.Ambiguous = v.Ambiguous
	lease, err := m.begin(a, s, v.Token, sent, true)
	return lease, keeper.AttemptResult{}, err
}

// depart counts an attempt, unless the Locker is closed.
func (m *leases) depart() bool {
	m.k.Mu.Lock()
	defer m.k.Mu.Unlock()
	if !m.k.Closed {
		m.k.Pending.Add(1)
	}
	return !m.k.Closed
}

// notGranted returns the error of an attempt. It abandons an attempt that may have been granted,
// or may be granted later.
func (m *leases) notGranted(ctx context.Context, a keeper.Attempt, v keeper.AttemptResult, err error) error {
	a.Ambiguous = v.Ambiguous || err != nil && !m.statements.Dialect.RolledBack(err)
	if (err != nil || !v.Won) && a.Ambiguous {
		m.k.Abandon(m, a)
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, holdfast.ErrPoolExhausted) {
		return context.Cause(ctx)
	}
	return err
}

// check validates the arguments of a call and returns the name of the lock's row.
func check(ctx context.Context, owner core.Owner, key string, wrong error) (name lockname.Name, err error) {
	if name, err = lockname.Of(lockname.Lease, owner, key); err != nil {
		return name, err
	}
	if wrong != nil {
		return name, wrong
	}
	return name, context.Cause(ctx)
}

// TryAcquire tries once to acquire the lock on key. It does not wait for the holder.
//
// Errors: [ErrHeld] as a *[HeldError] with the holder, and the errors of Acquire.
func (l *Locker[Tx]) TryAcquire(ctx context.Context, key string, opts ...AcquireOptions) (*Lease, error) {
	s, err := l.settings(ctx, opts)
	lease, err := l.leases.tryAcquire(ctx, l.owner, key, s, err)
	return (*Lease)(lease), err
}

func (m *leases) tryAcquire(ctx context.Context, owner core.Owner, key string, s keeper.Settings, wrong error) (lease *keeper.Lease, err error) {
	ctx, op := m.k.StartCall(ctx, "lease.try_acquire", trace.LockLease)
	defer func() { op.End(err, keeper.Acquired) }()
	name, err := check(ctx, owner, key, wrong)
	if err != nil {
		return nil, err
	}
	return m.try(ctx, name, s)
}

// tries is how often TryAcquire tries for a row that seems free but is locked, usually by a
// statement that is about to be granted the lock.
const tries = 3

func (m *leases) try(ctx context.Context, name lockname.Name, s keeper.Settings) (*keeper.Lease, error) {
	m.k.Mu.Lock()
	again := m.queues[name].again(s.By)
	m.k.Mu.Unlock()
	if again != nil {
		return again, nil
	}
	for n := 1; ; n++ {
		lease, v, err := m.attempt(ctx, name, s)
		if lease != nil || err != nil {
			return lease, err
		}
		if v.Left > 0 || n == tries {
			return nil, &HeldError{Key: name.Key(), Holder: v.Holder, Token: v.Token, Remaining: v.Left}
		}
		time.Sleep(minPoll)
	}
}

// Do acquires the lock on key, runs fn and releases the lock, also when fn panics.
//
// fn has two contexts. Its ctx is that of the call: begin transactions on it, with [Locker.InTx].
// Use lease.Context() for work outside the database: it ends with the lease and with ctx, but not with ctx where
// there is an AcquireOptions.Reentry.
//
// Errors: the error of fn; the errors of Acquire, and then fn did not run; [ErrLost] or
// [ErrClosed] when fn returned nil after the lease had ended. In that case the guarded
// transactions of fn stand, and its other work may have overlapped with the work of the next
// holder. Do ignores other errors of the release: the lease ends with its TTL.
func (l *Locker[Tx]) Do(ctx context.Context, key string, fn func(ctx context.Context, lease *Lease) error, opts ...AcquireOptions) error {
	s, err := l.settings(ctx, opts)
	s.Within = ctx
	acquire := func(ctx context.Context) (*keeper.Lease, error) { return l.leases.acquire(ctx, l.owner, key, s, err) }
	return l.leases.k.Do(ctx, "lease.do", trace.LockLease, acquire, func(ctx context.Context, lease *keeper.Lease) error { return fn(ctx, (*Lease)(lease)) })
}

package rowlock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// holdCheck is the pause between two checks of a session lock's connection, and the
// bound on each check.
const holdCheck = time.Second

// SessionLock is a key that is locked for as long as a connection lives. It is safe for
// concurrent use.
type SessionLock struct {
	key    string
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
	err    error // why the lock ended; set before ended is closed

	releasing sync.Once
	released  error
}

// Hold locks key without a transaction of the caller's, until the lock is released. It
// keeps a connection of the pool, and a transaction on that connection holds the lock. It
// locks the same keys as [Locker.LockTx]. ctx and wait bound the wait, not the lock.
//
// There is no TTL. When the process or the connection dies, the server frees the key
// at once. If the network goes silent, the server frees it when it notices
// (tcp_keepalives_idle, wait_timeout). There is no fencing token either: until its
// context ends, a former holder may go on for up to two seconds. So use Hold for work
// that is wasteful but harmless if it runs twice; otherwise use a lease.
//
// Errors: those of LockTx, and [holdfast.ErrUnsupported] on SQLite, where Hold would
// lock everything, and on Galera.
func (l *Locker[Tx]) Hold(ctx context.Context, key string, wait time.Duration) (held *SessionLock, err error) {
	_, op := l.access.Trace.Start(ctx, trace.Call{Name: "hold.acquire", Lock: trace.LockHold, Waits: true})
	defer func() { op.End(err, acquired) }()
	if _, err := lockname.Of(lockname.Row, l.owner, key); err != nil {
		return nil, err
	}
	if _, err := modeOf(wait); err != nil {
		return nil, err
	}
	if why := l.access.Dialect.RowLocks.NoSession; why != "" {
		return nil, &holdfast.UnsupportedError{Engine: l.access.Dialect.Name, What: "Hold", Problem: why}
	}
	if err := l.reachesAll("Hold"); err != nil {
		return nil, err
	}
	h := &SessionLock{key: key, ended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	locked := make(chan struct{})
	var since time.Time
	// At READ COMMITTED an open transaction keeps no snapshot, and so no old rows.
	opts := core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: core.DefaultLockTimeout}
	waiting, stop := context.WithCancel(l.access.Trace.Quiet(context.WithoutCancel(ctx)))
	defer context.AfterFunc(ctx, stop)()
	go func() {
		defer close(h.ended)
		h.err = l.access.Attempt(waiting, opts, nil, func(_ context.Context, tx Tx, q core.Querier, _ core.Reply) error {
			if err := l.LockTx(waiting, tx, key, wait); err != nil {
				return err
			}
			close(locked)
			since = time.Now()
			l.access.Trace.Emit(h.ctx, trace.Event{Name: trace.LeaseGranted, Lock: trace.LockHold})
			defer time.AfterFunc(core.CleanupBound(), stop) // bounds the commit
			return h.keep(q)
		})
		stop()
		h.cancel(&LostError{Key: key, Reason: "its connection or its transaction has ended", Err: h.err})
		if !since.IsZero() {
			h.report(l.access.Trace, since)
		}
	}()
	select {
	case <-locked:
		return h, nil
	case <-h.ended:
		if ctx.Err() != nil && !errors.Is(h.err, context.Cause(ctx)) && !errors.Is(h.err, holdfast.ErrPoolExhausted) {
			return nil, context.Cause(ctx)
		}
		return nil, h.err
	}
}

// keep returns at the release, or when the connection has ended. At a release the
// caller commits the transaction: that succeeds only if it had not ended before.
func (h *SessionLock) keep(q core.Querier) error {
	ticker := time.NewTicker(holdCheck)
	defer ticker.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return nil
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), holdCheck)
		var one int
		_, err := core.QueryRow(ctx, q, []any{&one}, `SELECT 1`)
		cancel()
		if err != nil {
			return err
		}
	}
}

// report reports the end of the lock to the tracers.
func (h *SessionLock) report(t *trace.Tracer, since time.Time) {
	f := trace.Event{Name: trace.LeaseEnded, Lock: trace.LockHold, Outcome: trace.Released, Duration: time.Since(since)}
	if h.lost() != nil {
		f.Outcome = trace.Lost
		t.Emit(h.ctx, trace.Event{Name: trace.LeaseLost, Lock: trace.LockHold, Cause: trace.CauseConnection, Err: h.err})
	}
	t.Emit(h.ctx, f)
}

// Key returns the locked key.
func (h *SessionLock) Key() string { return h.key }

// Context returns a context that ends at the release, or within two seconds after the
// connection has ended. In the second case another process may hold the key already. The cause
// is [ErrReleased] or [ErrLost]. The values are those of Hold's ctx.
func (h *SessionLock) Context() context.Context { return h.ctx }

// Release frees the key and returns the connection to the pool. It waits for that up to
// five seconds, also if ctx has ended. A second call returns the same.
//
// Errors: [ErrLost] if the connection had ended before, or may have, because the
// server did not answer.
func (h *SessionLock) Release(ctx context.Context) error {
	h.releasing.Do(func() {
		h.cancel(ErrReleased)
		ctx, cancel := core.Cleanup(ctx)
		defer cancel()
		select {
		case <-h.ended:
			h.released = h.lost()
		case <-ctx.Done():
			h.released = &LostError{Key: h.key, Reason: "the server did not answer its release", Err: context.Cause(ctx)}
		}
	})
	return h.released
}

// lost returns an ErrLost if the lock ended before its release, or may have.
func (h *SessionLock) lost() error {
	cause := context.Cause(h.ctx)
	switch {
	case errors.Is(cause, ErrLost):
		return cause
	case h.err != nil: // its transaction could not be committed
		return &LostError{Key: h.key, Reason: "its connection or its transaction had ended at its release", Err: h.err}
	}
	return nil
}

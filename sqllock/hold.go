package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// holdCheck is how often it is looked whether a hold's connection is alive, and
// how long that may take.
const holdCheck = time.Second

// Held is a key that is locked by a transaction which does nothing else.
type Held struct {
	key    string
	ctx    context.Context
	cancel context.CancelCauseFunc
	ended  chan struct{}
	once   sync.Once
	err    error // of the end, once ended is closed
}

// Hold locks key by a transaction of its own, on a connection of the pool that
// it keeps until it is released. It locks what [Locker.LockTx] locks, and has no
// TTL: when this process dies or its connection does, the server frees the key
// at once, or, when the network has gone silent, when the server finds out
// (tcp_keepalives_idle, wait_timeout). There is no token and no guard, so it is
// for work of which a second one at the same time is a waste and no harm;
// otherwise take a lease.
//
// Errors: those of LockTx, and [holdfast.ErrUnsupported] on SQLite, where it
// would lock everything, and on Galera.
func (l *Locker[Tx]) Hold(ctx context.Context, key string, wait Wait) (held *Held, err error) {
	_, op := l.leases.tellOf(ctx, trace.LockHold, "acquire")
	defer func() { op.End(err, acquired) }()
	if _, err := nameOf(kindRow, key); err != nil {
		return nil, err
	}
	d := l.access.Dialect
	if !d.Capabilities.RowLocks {
		return nil, &holdfast.UnsupportedError{Engine: d.Name, What: "Hold", Problem: "there is one writer, and it would be held: use a lease"}
	}
	if err := l.exclusive("Hold"); err != nil {
		return nil, err
	}
	h := &Held{key: key, ended: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	locked := make(chan struct{})
	var since time.Time
	// At READ COMMITTED an open transaction keeps no snapshot, and so no old rows.
	opts := core.TxOptions{Isolation: sql.LevelReadCommitted, LockTimeout: holdfast.DefaultLockTimeout}
	waiting, stop := context.WithCancel(l.access.Trace.Quiet(h.ctx))
	defer context.AfterFunc(ctx, stop)()
	go func() {
		defer close(h.ended)
		h.err = l.access.Attempt(waiting, opts, func(_ context.Context, tx Tx, q core.Querier) error {
			if err := l.LockTx(waiting, tx, key, wait); err != nil {
				return err
			}
			close(locked)
			since = time.Now()
			l.access.Trace.Tell(h.ctx, trace.Fact{Name: trace.LeaseGranted, Lock: trace.LockHold})
			return h.keep(q)
		})
		stop()
		h.cancel(&LostError{Key: key, Reason: "its connection or its transaction has ended", Err: h.err})
		if !since.IsZero() {
			h.tell(l.access.Trace, since)
		}
	}()
	select {
	case <-locked:
		return h, nil
	case <-h.ended:
		if ctx.Err() != nil && !errors.Is(h.err, context.Cause(ctx)) {
			return nil, context.Cause(ctx)
		}
		return nil, h.err
	}
}

// keep returns when the hold is released, or its connection has ended. The
// transaction is committed then, as LockTx moves the key's row.
func (h *Held) keep(q core.Querier) error {
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

// tell tells of its end.
func (h *Held) tell(t *trace.Tracer, since time.Time) {
	f := trace.Fact{Name: trace.LeaseEnded, Lock: trace.LockHold, Outcome: trace.Released, Duration: time.Since(since)}
	if errors.Is(context.Cause(h.ctx), ErrLost) {
		f.Outcome = trace.Lost
		t.Tell(h.ctx, trace.Fact{Name: trace.LeaseLost, Lock: trace.LockHold, Cause: trace.CauseConnection, Err: h.err})
	}
	t.Tell(h.ctx, f)
}

// Key is what is held.
func (h *Held) Key() string { return h.key }

// Context ends when the key is released, or within two seconds after the
// connection has ended: then somebody else may have the key already. Its cause
// is ErrReleased or ErrLost.
func (h *Held) Context() context.Context { return h.ctx }

// Release frees the key and gives the connection back, and waits for that for
// at most holdfast.CleanupTimeout. Called again it says the same.
//
// Errors: [ErrLost] when the transaction had ended before.
func (h *Held) Release(ctx context.Context) error {
	h.once.Do(func() { h.cancel(ErrReleased) })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	select {
	case <-h.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if cause := context.Cause(h.ctx); errors.Is(cause, ErrLost) {
		return cause
	}
	return nil
}

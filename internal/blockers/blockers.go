// Package blockers finds out who blocks a session that waits for a lock. While the session waits, and
// shortly before it gives up, another connection of the pool asks the server.
package blockers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// lead is how long before the end of a wait the first look begins, because InnoDB ends a wait of a
	// second up to half a second early. A look that finds no blocker is repeated after a pause, because
	// MariaDB's answer may be 100 ms old, at most looks times.
	lead  = 750 * time.Millisecond
	pause = 50 * time.Millisecond
	looks = 12
	// timeout bounds a look, and grace the wait for a look that is under way when the wait has ended.
	timeout = 500 * time.Millisecond
	grace   = 100 * time.Millisecond
	// rest is the pause after the server has refused the look to this role.
	rest = time.Minute
)

// Env is the part of a database that a look needs. One look runs at a time, because it costs the server
// more than the waits.
type Env struct {
	dialect *dialect.Dialect
	onConn  core.OnConn
	session core.Stmt
	look    core.Stmt
	one     chan struct{}
	refused atomic.Int64
}

// New returns nil if the engine does not tell who blocks. onConn is that of access.Handle.
func New(d *dialect.Dialect, onConn core.OnConn) *Env {
	if !d.Capabilities.NamesBlockers {
		return nil
	}
	return &Env{
		dialect: d, onConn: onConn, one: make(chan struct{}, 1),
		session: d.Compile("session", d.Doctor.Session), look: d.Compile("blockers", d.Doctor.Blockers),
	}
}

// Run asks the server, on a connection of the pool that is free. stmt returns the columns of blockers.
// It fails if no connection is free, or if the role may not ask.
func (e *Env) Run(ctx context.Context, stmt core.Stmt, args ...any) (found []core.Blocker, err error) {
	ctx, cancel := core.CleanupWithin(ctx, timeout)
	defer cancel()
	turn := time.NewTimer(core.PoolWait)
	defer turn.Stop()
	select {
	case e.one <- struct{}{}:
		defer func() { <-e.one }()
	case <-turn.C:
		return nil, context.DeadlineExceeded
	}
	err = core.OnFree(ctx, core.PoolWait, e.onConn, "", func(q core.Querier) error {
		rows, err := stmt.Query(ctx, q, args...)
		if err != nil {
			return err
		}
		found, err = core.Collect(rows, func(row core.Row) (core.Blocker, error) { return core.ScanBlocker(row) })
		return err
	})
	if e.dialect.Classify(err) == dialect.Denied {
		e.refused.Store(time.Now().Add(rest).UnixNano())
	}
	return found, err
}

// Watch finds out who blocks the waits of one call. The zero value finds no blocker.
type Watch struct {
	env    *Env
	until  time.Time
	waited bool
	found  []core.Blocker
}

// Watch returns the watch of a call that waits until then. e may be nil.
func (e *Env) Watch(until time.Time) Watch {
	if e == nil || time.Now().UnixNano() < e.refused.Load() {
		return Watch{}
	}
	return Watch{env: e, until: until}
}

// First reports whether no wait has ended without the lock yet, so that a look needs another one.
func (w *Watch) First() bool { return w.env != nil && !w.waited }

// Due reports whether the next wait, of up to bound, is one to look at: an earlier one has ended without
// the lock, and the call may give up after the next.
func (w *Watch) Due(bound time.Duration) bool {
	return w.env != nil && w.waited && time.Until(w.until) <= 2*bound
}

// Ended takes note of the end of a wait. busy: it ended without the lock.
func (w *Watch) Ended(err error) (busy bool) {
	busy = w.env != nil && w.env.dialect.Classify(err) == dialect.Busy
	w.waited = w.waited || busy
	return busy
}

// Found returns who blocked the last wait in which a blocker was found.
func (w *Watch) Found() []core.Blocker { return w.found }

// During runs wait, which waits on q for a lock, at most for bound, and returns its error. If it is Due,
// During looks who blocks the session. It reads the session's number then, in the transaction: behind a
// pooler another transaction may have another session.
func (w *Watch) During(ctx context.Context, q core.Querier, bound time.Duration, wait func() error) error {
	var l *look
	if w.Due(bound) {
		var session string
		if _, err := w.env.session.QueryRow(ctx, q, []any{&session}); err != nil {
			return err
		}
		l = w.env.start(ctx, session, max(bound/4, bound-lead))
	}
	err := wait()
	found := l.end(w.Ended(err))
	if err == nil || len(found) > 0 {
		w.found = found // a call may wait for several locks
	}
	return err
}

// look is the look at one wait.
type look struct {
	over  chan struct{} // the wait has ended
	found chan []core.Blocker
}

func (e *Env) start(ctx context.Context, session string, after time.Duration) *look {
	l := &look{over: make(chan struct{}), found: make(chan []core.Blocker, 1)}
	go func() { l.found <- e.watch(ctx, session, after, l.over) }()
	return l
}

// watch looks until it finds a blocker, or the wait is over.
func (e *Env) watch(ctx context.Context, session string, after time.Duration, over <-chan struct{}) []core.Blocker {
	t := time.NewTimer(after)
	defer t.Stop()
	for range looks {
		select {
		case <-t.C:
		case <-over:
			return nil
		}
		if found, err := e.Run(ctx, e.look, session); err != nil || len(found) > 0 {
			return found
		}
		t.Reset(pause)
	}
	return nil
}

// end ends the look with its wait. A wait that got its lock needs no blockers.
func (l *look) end(wanted bool) []core.Blocker {
	if l == nil {
		return nil
	}
	close(l.over)
	if !wanted {
		return nil // a running look ends without help
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case found := <-l.found:
		return found
	case <-t.C:
		return nil
	}
}

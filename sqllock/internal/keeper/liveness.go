package keeper

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const (
	// confirmEvery is how often a session is confirmed, and confirmBound how long that may take. So a
	// silent session is lost after three seconds.
	confirmEvery, confirmBound = time.Second, 2 * time.Second
	// sessionConnections is how many connections of the pool a session uses.
	sessionConnections = 2
	// endedEvery is how often polls ask whether the session of one process has ended.
	endedEvery = 50 * time.Millisecond
	// suspected is for how long they ask each time after a lock of its connections was released.
	suspected = 200 * time.Millisecond
	// inSession marks the id of a process that has a session, in the last byte.
	inSession = 1
)

// Liveness shows other processes that this process has ended: one connection holds a lock of the
// engine, which ends with the connection. The attempts made during the session begin with the id
// of the session, so a waiting process knows which lock to look at. When the lock is gone, it
// takes the term over.
//
// The id has a part that depends on the server. Another server, or on PostgreSQL the same one
// after a restart, cannot tell whether the session has ended.
//
// A session that ends, or cannot be confirmed, ends the terms of its attempts, because
// other processes may have taken them. Its id is not used again. The connection is idle most of the
// time, so that the server sees its end at once. This process sees it by another connection, which
// waits for the lock as other processes do.
type Liveness struct {
	k                                      *Keeper
	side                                   Side
	server, hold, confirm, hasEnded, await core.Stmt

	id      atomic.Pointer[Process] // nil while there is no session
	number  atomic.Int64            // the server's number of it
	running sync.WaitGroup

	mu     sync.Mutex
	others map[Process]other
}

// other is what is known about the session of another process.
type other struct {
	asked     time.Time // when a poll last asked whether it has ended
	suspected time.Time // until when polls ask each time
	ended     bool      // for good: ids are not used again
}

var errNoSession = errors.New("its session is gone, or is not the one that has its lock (is there a pooler in between?)")

func newLiveness(k *Keeper, side Side) *Liveness {
	s, d := k.Statements, k.Statements.Dialect.Leases.Liveness
	return &Liveness{
		k: k, side: side, others: map[Process]other{},
		server: s.Compile("session.server", d.Server), hold: s.Compile("session.hold", d.Hold),
		confirm: s.Compile("session.confirm", d.Confirm), hasEnded: s.Compile("session.ended", d.Ended),
		await: s.Compile("await", s.Dialect.Leases.Wake.Await),
	}
}

// live returns the name of the lock of a session.
func live(p Process) string { return "holdfast_live_" + hex.EncodeToString(p[:]) }

// InSession reports whether the id is that of a session.
func (p Process) InSession() bool { return p[len(p)-1]&inSession != 0 }

// Identity returns the first part of the ids of new attempts: that of the session, if there is one.
func (k *Keeper) Identity() Process {
	if id := k.Liveness.id.Load(); id != nil {
		return *id
	}
	return k.Statements.Process
}

// NewAttemptID returns a new random id.
func (k *Keeper) NewAttemptID() AttemptID { return k.Identity().NewAttemptID() }

// Open begins the session and keeps it until the keeper's Ctx ends. If it is lost, it begins
// another one.
func (s *Liveness) Open(ctx context.Context) error {
	if s.k.Statements.Dialect.Leases.Liveness.Hold == "" {
		return Invalid("Options.ReleaseOnDisconnect", "this engine, or a cluster with several writers, cannot tell when a process has ended")
	}
	first := make(chan error, 1)
	s.running.Go(func() {
		opened := false
		for pause := firstRetry; ; pause = min(2*pause, mostRetry) {
			err := s.side(s.k.Ctx, sessionConnections, func(q core.Querier) error {
				return s.run(s.k.Ctx, q, func() {
					pause = firstRetry
					opened = true
					signalError(first, nil)
				})
			})
			if signalError(first, err); opened && err != nil {
				s.k.failed(err)
			}
			select {
			case <-s.k.Ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	})
	select {
	case err := <-first:
		if errors.Is(err, core.ErrNoListener) {
			return Invalid("Options.ReleaseOnDisconnect", fmt.Sprintf("needs a connection of its own, and the pool is too small: %v", err))
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func signalError(c chan error, err error) {
	select {
	case c <- err:
	default:
	}
}

// run keeps one session until it is lost.
func (s *Liveness) run(ctx context.Context, q core.Querier, begun func()) (err error) {
	bounded, cancel := context.WithTimeout(ctx, confirmBound) // the connection may be an old one that nothing passes any more
	id, err := s.newID(bounded, q)
	cancel()
	if err != nil {
		return err
	}
	var got, connection, other *int64
	if err := answer(ctx, s.hold, q, live(id), &got, &connection); err != nil || got == nil || *got != 1 || connection == nil {
		return errors.Join(err, errNoSession)
	}
	s.number.Store(*connection)
	s.id.Store(&id)
	begun()
	defer func() {
		s.k.Waker.Stay(false)
		s.id.Store(nil)
		s.k.disconnected(id, err)
	}()
	own, lost := context.WithCancel(ctx)
	defer lost()
	doubt := make(chan struct{}, 1)
	s.running.Go(func() { s.watch(own, id, lost, doubt) })
	tick := time.NewTicker(confirmEvery)
	defer tick.Stop()
	for {
		s.k.Waker.Stay(true) // again, after its connection was lost
		c, cancel := context.WithTimeout(own, confirmBound)
		_, err := s.confirm.QueryRow(c, q, []any{&other})
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil || other == nil || *other != *connection:
			return errors.Join(err, errNoSession)
		}
		select {
		case <-own.Done():
			return errNoSession
		case <-doubt:
		case <-tick.C:
		}
	}
}

// watch waits on another connection until the session has ended, and calls lost. If its own connection ends, it
// sends doubt: what has ended it may have ended the session too.
func (s *Liveness) watch(ctx context.Context, id Process, lost func(), doubt chan<- struct{}) {
	for ctx.Err() == nil {
		_ = s.side(ctx, sessionConnections, func(q core.Querier) error {
			for {
				var held, got, released *int64
				err := answer(ctx, s.await, q, live(id), &held, &got, &released)
				switch {
				case ctx.Err() != nil:
					return err
				case s.k.Statements.Dialect.Classify(err) == dialect.Busy || err == nil && got != nil && *got == 0:
				case err != nil || got == nil:
					return errors.Join(err, errNoSession)
				default:
					lost()
					return nil
				}
			}
		})
		select {
		case doubt <- struct{}{}:
		default:
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstRetry): // its own connection was lost
		}
	}
}

// newID returns an id for a session on q's server.
func (s *Liveness) newID(ctx context.Context, q core.Querier) (id Process, err error) {
	var server string
	if _, err = s.server.QueryRow(ctx, q, []any{&server}); err != nil {
		return id, err
	}
	_, _ = rand.Read(id[:]) // it never fails
	tag := sha256.Sum256([]byte(server))
	copy(id[4:7], tag[:])
	id[7] |= inSession
	return id, nil
}

// disconnected ends the terms of the attempts of a session that was lost.
func (k *Keeper) disconnected(id Process, err error) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for l := range k.held {
		if ProcessOf(l.attempt.ID[:]) == id {
			l.renewError = cmp.Or(l.renewError, err)
			k.Lose(l, trace.CauseConnection, sessionLost)
		}
	}
}

const sessionLost = "the session that shows that this process lives was lost"

// orphaned reports whether a term was granted to an attempt of a session that was lost since: another
// process may have it.
func (k *Keeper) orphaned(l *Lease) bool {
	p := ProcessOf(l.attempt.ID[:])
	return p.InSession() && p != k.Identity()
}

// Ended reports whether p is the id of a session that has ended. Errors count as "no".
func (s *Liveness) Ended(ctx context.Context, p Process) bool {
	if !p.InSession() || p == s.k.Identity() {
		return false
	}
	var over *int64
	var server string
	err := s.k.Statements.OnConn(ctx, func(q core.Querier) error {
		_, err := s.hasEnded.QueryRow(ctx, q, []any{&over, &server}, live(p))
		return err
	})
	tag := sha256.Sum256([]byte(server))
	return err == nil && over != nil && *over == 1 && [3]byte(tag[:3]) == [3]byte(p[4:7])
}

// EndedNow is Ended for polls: it asks only now and then.
func (s *Liveness) EndedNow(ctx context.Context, p Process) bool {
	if !p.InSession() {
		return false
	}
	now := time.Now()
	s.mu.Lock()
	o := s.others[p]
	asks := !o.ended && (now.Before(o.suspected) || now.Sub(o.asked) >= endedEvery)
	if asks {
		o.asked = now
		s.set(p, o)
	}
	s.mu.Unlock()
	if asks && s.Ended(ctx, p) {
		o.ended = true
		s.mu.Lock()
		s.set(p, o)
		s.mu.Unlock()
	}
	return o.ended
}

// EndedIn is EndedNow for one poll, which asks once about each process. asked has the answers so far.
func (s *Liveness) EndedIn(ctx context.Context, asked map[Process]bool, p Process) bool {
	over, known := asked[p]
	if !known {
		over = s.EndedNow(ctx, p)
		asked[p] = over
	}
	return over
}

// set records what is known about a session, and forgets old ones. s.mu is held.
func (s *Liveness) set(p Process, o other) {
	for p, o := range s.others {
		if time.Since(o.asked) > time.Minute && time.Since(o.suspected) > time.Minute {
			delete(s.others, p)
		}
	}
	s.others[p] = o
}

// suspect makes polls ask at once whether the session has ended.
func (s *Liveness) suspect(p Process) {
	if !p.InSession() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.others[p]
	o.suspected = time.Now().Add(suspected)
	s.set(p, o)
}

// Suspected reports whether the session may have ended a moment ago.
func (s *Liveness) Suspected(p Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.others[p].suspected)
}

// ID returns the id of the session, and "" if there is none, for tests.
func (s *Liveness) ID() string {
	if id := s.id.Load(); id != nil {
		return hex.EncodeToString(id[:])
	}
	return ""
}

// Number returns the server's number of the session, for tests.
func (s *Liveness) Number() int64 { return s.number.Load() }

// wait waits until the goroutine has ended; the keeper's Ctx has ended.
func (s *Liveness) wait() { s.running.Wait() }

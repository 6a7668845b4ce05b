package sqllock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/trace"
)

const (
	kindFair      kind = 'f'
	kindSemaphore kind = 's'

	// MaxPermits is the largest capacity of a semaphore, and how many can share
	// a lock.
	MaxPermits = 1 << 20
)

// claim is one call's place in the line of a key, from when it asks until its
// lease ends.
type claim struct {
	ask
	settings
	name  []byte
	tries int           // how often it was to join
	event chan struct{} // something of what follows has changed

	// Under the manager's mu:
	line    *line
	lease   *Lease // its place in the table; nil while it has none
	granted bool
	err     error // why it has no place
	gone    bool  // nobody waits for it any more
}

// ask is what a call wants.
type ask struct {
	kind            kind
	key             string
	units, capacity int
	now             bool // at once or not at all
}

// line is what this process has of a key's line.
type line struct {
	name    []byte
	joining []*claim // not in the table yet
	waiting []*claim // in the table, in its order

	serving bool     // a goroutine writes for this key
	ready   []*claim // those of waiting that nothing is in the way of
	dead    bool     // claims that have expired are in the way
	ahead   int64    // claims before the first of waiting, when it was looked at
	pause   time.Duration
	hurry   bool // look at once
}

// claim waits for a place in a key's line and until it is granted, or asks once.
func (m *manager) claim(ctx context.Context, a ask, opts []Option) (lease *Lease, err error) {
	outer := ctx
	verb := "acquire"
	if a.now {
		verb = "try_acquire"
	}
	ctx, op := m.tellOf(ctx, a.lock(), verb)
	defer func() { op.End(err, acquired) }()
	name, err := nameOf(a.kind, a.key)
	if err != nil {
		return nil, err
	}
	s, err := m.options.settings(opts)
	s.values = outer
	switch {
	case err != nil:
		return nil, err
	case s.by != nil:
		return nil, invalid("WithOwner", "locks with a line are not re-entrant")
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !a.now:
		if err := m.nested(ctx, a, name); err != nil {
			return nil, err
		}
	}
	c := &claim{ask: a, settings: s, name: name, event: make(chan struct{}, 1)}
	if a.now {
		return m.claimNow(ctx, c)
	}
	return m.await(ctx, c)
}

// claimNow looks before it writes: losing must be cheap.
func (m *manager) claimNow(ctx context.Context, c *claim) (*Lease, error) {
	for n := 1; ; n++ {
		v, err := m.store.lookClaims(ctx, c.name)
		if err == nil && n <= tries && v.onlyDead(c.ask) {
			if _, err = m.store.clearDead(ctx, c.name); err == nil {
				continue
			}
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		case v.all > 0 && v.capacity != c.capacity:
			return nil, &CapacityError{Key: c.key, Permits: c.capacity, Others: v.capacity}
		case v.all+int64(c.units) > int64(c.capacity) || n > tries:
			return nil, &HeldError{Key: c.key, Holder: v.holder, Token: v.token, Remaining: v.left}
		}
		lease, err := m.await(ctx, c)
		if err != errRefused { //nolint:errorlint // it is never wrapped
			return lease, err
		}
		c.err, c.gone = nil, false
	}
}

// await is a call's way through the line to its lease.
func (m *manager) await(ctx context.Context, c *claim) (*Lease, error) {
	m.mu.Lock()
	m.lines.enlist(c)
	m.mu.Unlock()
	for {
		m.mu.Lock()
		var err error
		switch l := c.lease; {
		case c.granted && l.live && time.Now().Before(l.until):
			m.mu.Unlock()
			return l, nil
		case c.err != nil:
			err = c.err
		case m.closed:
			err = ErrClosed
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case l != nil && !l.live: // its place was lost, or the lease just before it could be returned
			if c.granted {
				m.forsake(l.attempt)
			}
			c.lease, c.granted = nil, false
			m.lines.enlist(c)
		}
		if err != nil {
			m.forgo(c, err)
			m.mu.Unlock()
			return nil, err
		}
		m.mu.Unlock()
		select {
		case <-c.event:
		case <-ctx.Done():
		}
	}
}

// forgo takes a call out of line; m.mu is held.
func (m *manager) forgo(c *claim, cause error) {
	c.gone = true
	q := c.line
	q.joining = without(q.joining, c)
	if c.lease != nil {
		m.end(c.lease, cause)
	}
	m.lines.drop(q)
}

// left takes a claim whose lease has ended out of line; m.mu is held.
func (s *lines) left(l *Lease) {
	q := l.claim.line
	q.waiting, q.ready = without(q.waiting, l.claim), without(q.ready, l.claim)
	if !l.claim.granted {
		s.m.forsake(l.attempt) // a place that nobody wants is in the way of others
	}
	signal(l.claim.event)
	s.soon(l.name)
}

// releaseClaim: the release of a claim is the end of its row. Whoever is next finds it gone.
func (m *manager) releaseClaim(ctx context.Context, l *Lease) error {
	m.mu.Lock()
	m.end(l, ErrReleased)
	m.mu.Unlock()
	was, err := m.store.leave(ctx, l.attempt)
	if err != nil {
		m.forsake(l.attempt)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines.soon(l.name)
	if err == nil && !was {
		if !errors.Is(context.Cause(l.ctx), ErrLost) {
			m.wasLost(l, trace.CauseRelease)
		}
		return l.lost("its claim was not there any more at its release")
	}
	return err
}

// sweepClaims takes forsaken claims out of line, and returns what else there is.
func (m *manager) sweepClaims(ctx context.Context, due []forsaken) (others []forsaken) {
	var claims []forsaken
	for _, f := range due {
		if f.claim {
			claims = append(claims, f)
		} else {
			others = append(others, f)
		}
	}
	for batch := range slices.Chunk(claims, pollBatch) {
		c, cancel := context.WithTimeout(ctx, holdfast.CleanupTimeout)
		all, err := m.store.leaveAll(c, batch)
		cancel()
		for _, f := range batch { // else some may be on their way yet, or locked
			m.swept(f, err == nil && all)
		}
	}
	return others
}

func without(list []*claim, c *claim) []*claim {
	return slices.DeleteFunc(list, func(o *claim) bool { return o == c })
}

package fairlock

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
	"github.com/holdfast-go/holdfast/sqllock/internal/schedule"
)

// ask describes what a call requests.
type ask struct {
	kind            lockname.Kind
	owner           core.Owner
	key             string
	units, capacity int
	now             bool // do not wait
}

// lock returns the trace name of the lock.
func (a ask) lock() string {
	switch {
	case a.kind == lockname.Semaphore:
		return trace.LockSemaphore
	case a.units == MaxPermits:
		return trace.LockFair
	}
	return trace.LockShared
}

// ticket is the ticket of one call, from the request until its lease ends.
type ticket struct {
	ask
	keeper.Settings
	name  lockname.Name
	outer *ticket       // the ticket whose lease's context this call runs under
	tries int           // how often it has tried to enter the queue
	event chan struct{} // a field below has changed

	// Under the keeper's Mu:
	queue   *queue
	lease   *keeper.Lease // nil while the ticket is not in the table
	granted bool
	err     error // why it is not in the table
	gone    bool  // the call has returned without it
	leaves  bool  // the call deletes its ticket before it returns
}

// tickets are the tickets of one process. At most one goroutine writes for each key, on one
// connection. So a thousand calls for one key do not take the whole pool while they wait for
// the key's row.
type tickets struct {
	k          *keeper.Keeper
	statements *statements
	polls      *schedule.Schedule[*queue]
	rarely     time.Duration // in tests: the poll interval once the process listens
	running    sync.WaitGroup

	// Under the keeper's Mu:
	queues  map[lockname.Name]*queue
	byLease map[*keeper.Lease]*ticket
}

func newTickets(k *keeper.Keeper) *tickets {
	s := &tickets{k: k, statements: newStatements(k.Statements), queues: map[lockname.Name]*queue{}, byLease: map[*keeper.Lease]*ticket{}}
	s.polls = schedule.New(k.Ctx, pollSlack, s.poll)
	return s
}

// acquire waits until the call's ticket is granted, or tries once. wrong is an error in the
// call's arguments.
func (s *tickets) acquire(ctx context.Context, a ask, settings keeper.Settings, wrong error) (lease *keeper.Lease, err error) {
	verb := "acquire"
	if a.now {
		verb = "try_acquire"
	}
	ctx, op := s.k.StartSpan(ctx, a.lock(), verb)
	defer func() { op.End(err, keeper.Acquired) }()
	name, err := lockname.Of(a.kind, a.owner, a.key)
	if err != nil {
		return nil, err
	}
	switch {
	case wrong != nil:
		return nil, wrong
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !a.now:
		if err := s.nested(ctx, a, name); err != nil {
			return nil, err
		}
	}
	c := &ticket{ask: a, Settings: settings, name: name, outer: holding(settings.Values), event: make(chan struct{}, 1)}
	c.Values = context.WithValue(settings.Values, holdingKey{}, c)
	if a.now {
		return s.try(ctx, c)
	}
	return s.await(ctx, c)
}

// tries is how often a call that does not wait clears expired tickets. After that it enters as often if there is room,
// because others may be faster.
const tries = 3

// try reads before it writes, so that a refused call is cheap.
func (s *tickets) try(ctx context.Context, c *ticket) (*keeper.Lease, error) {
	for n := 1; ; n++ {
		v, err := s.statements.readQueue(ctx, c.name)
		if err == nil && n <= tries && v.onlyExpired(c.ask) {
			if _, err = s.statements.clearExpired(ctx, c.name); err == nil {
				continue
			}
		}
		switch {
		case err != nil && ctx.Err() != nil && !errors.Is(err, holdfast.ErrPoolExhausted):
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		case v.all > 0 && v.capacity != c.capacity:
			return nil, &CapacityError{Key: c.key, Permits: c.capacity, Others: v.capacity}
		case v.all+int64(c.units) > int64(c.capacity) || n > 2*tries:
			return nil, &sqllock.HeldError{Key: c.key, Holder: v.Holder, Token: v.Token, Remaining: v.Left}
		}
		lease, err := s.await(ctx, c)
		if err != errRefused { //nolint:errorlint // it is never wrapped
			return lease, err
		}
		c.err, c.gone = nil, false
	}
}

// await takes a call through the queue to its lease.
func (s *tickets) await(ctx context.Context, c *ticket) (*keeper.Lease, error) {
	s.k.Mu.Lock()
	s.enqueue(c)
	s.k.Mu.Unlock()
	for {
		ended := keeper.Ended(ctx)
		s.k.Mu.Lock() // ctx is not asked any more: it may take Mu in its Err
		var err error
		var noTicket bool
		switch l := c.lease; {
		case c.granted && l.Trusted():
			s.k.Mu.Unlock()
			return l, nil
		case c.err != nil:
			err = c.err
		case s.k.Closed:
			err = sqllock.ErrClosed
		case ended != nil:
			err, noTicket = ended, l == nil
		case l != nil && !l.Live(): // the ticket was lost, or the lease just before it could be returned
			if c.granted {
				s.k.Abandon(s, *l.Attempt())
			}
			c.lease, c.granted = nil, false
			s.enqueue(c)
		}
		if err != nil {
			c.leaves = c.err == nil && !s.k.Closed // also with a grant that came too late
			entering := c.lease == nil && !slices.Contains(c.queue.entering, c)
			s.leave(c, err)
			leaves := c.leaves // the goroutine that has sent the ticket may change it
			s.k.Mu.Unlock()
			if noTicket {
				err = s.statements.Starved(ctx, err)
			}
			s.giveUp(ctx, c, leaves, entering)
			return nil, err
		}
		s.k.Mu.Unlock()
		select {
		case <-c.event:
		case <-ctx.Done():
		}
	}
}

// leaveBound bounds how long a call whose context has ended waits until its ticket is gone. After it, the
// ticket leaves in the background.
const leaveBound = time.Second

// giveUp deletes the ticket of a call that ends without its lock, so that a lock without a holder is free
// when the call returns. entering reports that the ticket is on its way into the table: the goroutine that
// sent it deletes it.
func (s *tickets) giveUp(ctx context.Context, c *ticket, leaves, entering bool) {
	if !leaves || c.lease == nil && !entering {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveBound)
	defer cancel()
	if entering {
		for {
			s.k.Mu.Lock()
			leaves := c.leaves
			s.k.Mu.Unlock()
			if !leaves || ctx.Err() != nil {
				return
			}
			select {
			case <-c.event:
			case <-ctx.Done():
			}
		}
	}
	all, err := s.statements.releaseAll(ctx, []keeper.Abandoned{{Name: c.name, ID: c.lease.Attempt().ID}})
	if err != nil || !all { // it is locked, for example by a guarded transaction
		s.k.Abandon(s, *c.lease.Attempt())
	}
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	s.pollNow(c.name)
}

// leave removes a call from the queue. Mu is held.
func (s *tickets) leave(c *ticket, cause error) {
	c.gone = true
	q := c.queue
	q.entering = without(q.entering, c)
	if c.lease != nil {
		s.k.End(c.lease, cause)
	}
	s.drop(q)
}

// Ended removes the ticket of an ended lease from the queue. Mu is held.
func (s *tickets) Ended(l *keeper.Lease, lost bool) {
	c := s.byLease[l]
	delete(s.byLease, l)
	q := c.queue
	q.waiting, q.ready = without(q.waiting, c), without(q.ready, c)
	if !c.granted && !c.leaves {
		s.k.Abandon(s, *l.Attempt()) // it would delay the tickets behind it
	}
	signal(c.event)
	if lost { // otherwise its row is still there
		s.pollNow(l.Attempt().Name)
	}
}

// Release deletes the ticket, and grants the next ones where the engine can in the same statement.
func (s *tickets) Release(ctx context.Context, l *keeper.Lease) error {
	s.k.Mu.Lock()
	s.k.Finish(l)
	s.k.Mu.Unlock()
	f, err := s.releaseTicket(ctx, *l.Attempt())
	if err == nil {
		f = s.k.Confirm(ctx, l, f)
	}
	if err != nil || l.Attempt().Ambiguous {
		s.k.Abandon(s, *l.Attempt())
	}
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	return s.k.Result(l, f, err)
}

// releaseTicket deletes a ticket, and hands over to the next ones.
func (s *tickets) releaseTicket(ctx context.Context, a keeper.Attempt) (keeper.Freed, error) {
	channel, payload := s.k.Notifier.Notice(a.Name)
	f, next, err := s.statements.release(ctx, a, channel, payload)
	s.k.Waker.Freed(a.Name)
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	granted := false
	for _, n := range next {
		if n.Granted {
			s.news(a.Name, n.Attempt)
			granted = true
		}
	}
	if !granted {
		s.pollNow(a.Name)
	}
	return f, err
}

// Notified takes the news that a ticket was granted, or polls a key's queue at once.
func (s *tickets) Notified(name lockname.Name, granted []byte) {
	if granted == nil {
		s.pollNow(name)
		return
	}
	s.news(name, granted)
}

// news gives a ticket to its call that another one's release has granted, if it is this process's. The statement has
// not moved the ticket's expiry, so its trust window stays that of its own last renewal: see tickets.pml. Mu is held.
func (s *tickets) news(name lockname.Name, attempt []byte) {
	q := s.queues[name]
	if q == nil {
		return
	}
	i := slices.IndexFunc(q.waiting, func(c *ticket) bool { return bytes.Equal(c.lease.Attempt().ID[:], attempt) })
	if i < 0 {
		return
	}
	c := q.waiting[i]
	if c.Once { // it is not renewed any more, so it gets its whole TTL now
		q.ready = append(q.ready, c)
		s.serve(q)
		return
	}
	s.grant(c)
	if c.units < c.capacity && len(q.waiting) > 0 {
		s.pollIn(q, minPoll) // more of them may have room
	}
}

// Woken polls the queues whose first ticket is that of a process.
func (s *tickets) Woken(p keeper.Process) {
	for name, q := range s.queues {
		if q.holder == p {
			s.pollNow(name)
		}
	}
}

// Missed polls all queues at once.
func (s *tickets) Missed() {
	for name := range s.queues {
		s.pollNow(name)
	}
}

// holdingKey is the context key of the ticket whose lease the context belongs to.
type holdingKey struct{}

func holding(ctx context.Context) *ticket {
	c, _ := ctx.Value(holdingKey{}).(*ticket)
	return c
}

// nested refuses a wait that cannot end before the lease of ctx ends.
func (s *tickets) nested(ctx context.Context, a ask, name lockname.Name) error {
	c := holding(ctx) // ctx is the caller's, and may take Mu
	s.k.Mu.Lock()
	defer s.k.Mu.Unlock()
	units := a.units
	for ; c != nil; c = c.outer {
		if c.lease == nil || !c.lease.Live() || c.lease.Statements().ID != s.statements.ID || c.name != name {
			continue
		}
		if units += c.units; a.kind == lockname.Fair || units > a.capacity {
			return &NestedError{Key: a.key, Token: c.lease.Token()}
		}
	}
	return nil
}

func without(list []*ticket, c *ticket) []*ticket {
	return slices.DeleteFunc(list, func(o *ticket) bool { return o == c })
}

// signal sends to a channel of capacity one, unless it is full.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package fairlock

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// listPage is how many tickets one statement reads.
const listPage = 500

// Queue is the queue of a fair lock or of a semaphore, as the database shows it.
type Queue struct {
	Owner, Key string
	// Permits is the capacity of a semaphore, 0 for a fair lock.
	Permits int
	// Tickets are in the order of the queue: first the held ones, then the waiting ones.
	Tickets []Ticket
	// Forced is the last ForceRelease on this key. It is zero if there was none. Package reaper
	// deletes it with the key's row.
	Forced sqllock.Forced

	taken int // the permits of all tickets
}

// Describe says in words what t has or waits for: "has alone", "waits shared", "has 2
// of 5".
func (q *Queue) Describe(t Ticket) string {
	does := "waits"
	if t.Held {
		does = "has"
	}
	switch {
	case q.Permits > 0:
		return fmt.Sprintf("%s %d of %d", does, t.Permits, q.Permits)
	case t.Permits == MaxPermits:
		return does + " alone"
	}
	return does + " shared"
}

// Ticket is the ticket of one call.
type Ticket struct {
	// Token is the fencing token. A waiting ticket has it already.
	Token  int64
	Holder string
	// Permits is the number of permits that the ticket takes. For a fair lock it is 1 if the
	// lock is shared and [MaxPermits] if it is exclusive.
	Permits int
	// Held is whether the ticket is granted.
	Held bool
	// Since is when the ticket entered the queue, by the database's clock.
	Since time.Time
	// Remaining is the time until the ticket expires, unless it is renewed. It is 0 for an
	// expired ticket, which the next ticket passes over.
	Remaining time.Duration
}

// Queue reads the queue of a fair lock. If the queue is empty, it has no tickets.
//
// Errors: [holdfast.ErrInvalid], the driver's.
func (l *Locker[Tx]) Queue(ctx context.Context, key string) (Queue, error) {
	return l.tickets.readAll(ctx, lockname.Fair, l.owner, key)
}

// ListOptions select queues to list. The zero value selects those of the Locker's owner.
type ListOptions struct {
	// Prefix selects the keys that begin with it.
	Prefix string
	// EveryOwner selects the queues of all owners: see [sqllock.ListOptions].
	EveryOwner bool
	// After is the queue that the list continues after, by its Key and, with EveryOwner, its Owner.
	After Queue
}

// Queues iterates over the queues of fair locks that have tickets, in the order of the keys' bytes.
// It reads 500 tickets at a time and is no snapshot. It ends at the first error.
//
// Errors: [holdfast.ErrInvalid], the driver's.
func (l *Locker[Tx]) Queues(ctx context.Context, opts ...ListOptions) iter.Seq2[Queue, error] {
	return l.tickets.statements.queues(ctx, lockname.Fair, l.owner, opts)
}

// ForceRelease deletes the ticket with a token, held or not. It records who did so. It affects
// the former holder as [sqllock.Locker.ForceRelease] does. It returns false if there is no such ticket.
//
// Errors: those of [sqllock.Locker.ForceRelease].
func (l *Locker[Tx]) ForceRelease(ctx context.Context, key string, token int64, who holdfast.Actor) (bool, error) {
	return l.tickets.forceRelease(ctx, lockname.Fair, l.owner, key, token, who)
}

// Queue reads the semaphore's queue.
//
// Errors: the driver's.
func (s *Semaphore[Tx]) Queue(ctx context.Context) (Queue, error) {
	return s.l.tickets.readAll(ctx, lockname.Semaphore, s.l.owner, s.key)
}

// ForceRelease is [Locker.ForceRelease] for the semaphore.
func (s *Semaphore[Tx]) ForceRelease(ctx context.Context, token int64, who holdfast.Actor) (bool, error) {
	return s.l.tickets.forceRelease(ctx, lockname.Semaphore, s.l.owner, s.key, token, who)
}

// Semaphores is [Locker.Queues] for semaphores.
func (l *Locker[Tx]) Semaphores(ctx context.Context, opts ...ListOptions) iter.Seq2[Queue, error] {
	return l.tickets.statements.queues(ctx, lockname.Semaphore, l.owner, opts)
}

func (s *tickets) readAll(ctx context.Context, k lockname.Kind, owner core.Owner, key string) (Queue, error) {
	name, err := lockname.Of(k, owner, key)
	if err != nil {
		return Queue{}, err
	}
	all, err := s.statements.read(ctx, dialect.QueueOfTickets, name.Args()...)
	return queueOf(name, all), err
}

func (s *statements) queues(ctx context.Context, k lockname.Kind, owner core.Owner, opts []ListOptions) iter.Seq2[Queue, error] {
	o, err := options.One(opts)
	if o.EveryOwner {
		owner = core.AnyOwner.Owner(o.After.Owner)
	}
	after := info{owner: owner.ID, name: k.Row(o.After.Key), Ticket: Ticket{Token: math.MaxInt64}}
	from := append([]byte{byte(k)}, o.Prefix...)
	tickets := core.Pages(cmp.Or(err, owner.Err), after, listPage, func(after info) ([]info, error) {
		return s.read(ctx, s.Dialect.ListTickets(o.EveryOwner), after.owner, after.name, after.Token, from, core.Behind(from), listPage)
	})
	return func(yield func(Queue, error) bool) {
		var queue Queue
		for i, err := range tickets {
			if err != nil {
				yield(Queue{}, err)
				return
			}
			if key := string(i.name[1:]); key != queue.Key || i.owner != queue.Owner {
				if len(queue.Tickets) > 0 && !yield(queue, nil) {
					return
				}
				queue = Queue{Owner: i.owner, Key: key}
			}
			queue.add(i)
		}
		if len(queue.Tickets) > 0 {
			yield(queue, nil)
		}
	}
}

func (s *tickets) forceRelease(ctx context.Context, k lockname.Kind, owner core.Owner, key string, token int64, who holdfast.Actor) (had bool, err error) {
	ctx, op := s.k.StartSpan(ctx, ask{kind: k, units: MaxPermits}.lock(), "force_release")
	defer func() { op.End(err, keeper.Outcome) }()
	name, err := lockname.Of(k, owner, key)
	if err != nil {
		return false, err
	}
	if err := keeper.CheckActor(who); err != nil {
		return false, err
	}
	had, err = s.statements.forceRelease(ctx, name, token, who)
	if had {
		s.k.Mu.Lock()
		s.pollNow(name)
		s.k.Mu.Unlock()
	}
	return had, err
}

// forceRelease deletes the ticket first and records that afterwards: the delete may wait for a
// guarded transaction, and the key's row must not be locked during that wait.
func (s *statements) forceRelease(ctx context.Context, name lockname.Name, token int64, who holdfast.Actor) (had bool, err error) {
	return s.Force(ctx, name, who, func(ctx context.Context, q core.Querier) (before, after *keeper.Forced, err error) {
		all, err := s.readOn(ctx, q, dialect.QueueOfTickets, name.Args()...)
		if err != nil {
			return nil, nil, err
		}
		r, err := s.Compile("force", dialect.ForceTicket).Exec(ctx, q, name.Args(token)...)
		if err != nil || r.Affected == 0 {
			return nil, nil, err
		}
		before = &keeper.Forced{Token: token} // a ticket that entered after the read has no holder here
		for _, t := range queueOf(name, all).Tickets {
			if t.Token == token {
				before.Holder, before.Held = t.Holder, t.Held
			}
		}
		_, err = s.Compile("forced", dialect.ForcedTicket).Exec(ctx, q, name.Args(who.By, who.Reason)...)
		return before, nil, err
	})
}

// info is a row of a queue. The row of a queue without tickets has no token.
type info struct {
	Ticket
	owner    string
	name     []byte
	capacity int
	forced   sqllock.Forced
}

func queueOf(name lockname.Name, all []info) Queue {
	queue := Queue{Owner: name.Owner, Key: name.Key()}
	for _, i := range all {
		queue.add(i)
	}
	return queue
}

func (q *Queue) add(i info) {
	q.Forced = i.forced
	if i.Token == 0 {
		return
	}
	if lockname.Kind(i.name[0]) == lockname.Semaphore {
		q.Permits = i.capacity
	}
	q.taken += i.Permits
	i.Held = q.taken <= i.capacity
	q.Tickets = append(q.Tickets, i.Ticket)
}

// read reads tickets on a connection of its own.
func (s *statements) read(ctx context.Context, text string, args ...any) (all []info, err error) {
	err = s.OnConn(ctx, func(q core.Querier) error {
		all, err = s.readOn(ctx, q, text, args...)
		return err
	})
	return all, err
}

func (s *statements) readOn(ctx context.Context, q core.Querier, text string, args ...any) ([]info, error) {
	rows, err := s.Compile("line", text).Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, scanInfo)
}

func scanInfo(row core.Row) (i info, err error) {
	var left, since int64
	var forced *int64
	err = row.Scan(&i.owner, &i.name, &i.Token, &i.Permits, &i.capacity, &i.Holder, &since, &left, &forced, &i.forced.By, &i.forced.Reason)
	i.Since, i.Remaining = time.UnixMicro(since).UTC(), keeper.Micros(left)
	if forced != nil {
		i.forced.At = time.UnixMicro(*forced).UTC()
	}
	return i, err
}

package lockstmt

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// TicketStatements are the statements of the tickets that differ in how engines report their results.
// Their model is internal/test/model/tickets.pml.
type TicketStatements struct {
	// Draw returns the last of new tokens.
	Draw      Number
	Enter     Enter
	Release   ReleaseTicket
	Renew     Renew
	Remaining Remaining
	Waited    Waited
}

// Tickets compiles the statements of the tickets.
func (t *Tables) Tickets() *TicketStatements {
	d := &t.dialect.Tickets
	return &TicketStatements{
		Draw: Number{t.Compile("draw", d.Draw), d.ByInsertID}, Enter: t.enter(d), Release: ReleaseTicket{t.Compile("leave", d.Release), d.ReleaseGrants},
		Renew: Renew{t, d.Renew, t.dialect.Leases.Renewed}, Remaining: Remaining{t, d.Remaining}, Waited: Waited{t, "waited tickets", dialect.WaitingTickets},
	}
}

// Enter inserts a ticket.
type Enter struct {
	ahead core.Stmt
	reads bool
	Number
}

func (t *Tables) enter(d *dialect.TicketSQL) Enter {
	e := Enter{reads: d.Ahead != "", Number: Number{t.Compile("enter", d.Enter), d.ByInsertID}}
	if e.reads {
		e.ahead = t.Compile("ahead", d.Ahead)
	}
	return e
}

// Run returns 0 if the ticket did not enter, 1 if it waits, and 2 if it was granted.
func (s Enter) Run(ctx context.Context, q core.Querier, name lockname.Name, a Attempt, units, capacity int, holder string, now bool) (int64, error) {
	ttl := a.TTL.Microseconds()
	if !s.reads {
		return s.Number.Run(ctx, q, name.Args(a.Token, a.ID[:], units, capacity, holder, ttl, bit(now))...)
	}
	var before, differing int
	if _, err := s.ahead.QueryRow(ctx, q, []any{&before, &differing}, name.Args(capacity)...); err != nil {
		return 0, err
	}
	granted := before+units <= capacity
	if differing > 0 || now && !granted {
		return 0, nil
	}
	_, err := s.stmt.Exec(ctx, q, name.Args(a.Token, a.ID[:], units, capacity, holder, ttl, bit(granted))...)
	return int64(1 + bit(granted)), err
}

// ReleaseTicket deletes a ticket. Where the engine can do it in the same statement, it grants the next ones.
type ReleaseTicket struct {
	stmt   core.Stmt
	grants bool
}

// Next is a ticket behind one that was released.
type Next struct {
	Attempt []byte
	Granted bool // otherwise it is the first one that waits
}

// Run reports whether the ticket was there. It notifies the processes of the next ones on channel.
func (r ReleaseTicket) Run(ctx context.Context, q core.Querier, a Attempt, channel, payload string) (was bool, next []Next, err error) {
	args := a.Name.Args(a.Token, a.ID[:])
	if !r.grants {
		result, err := r.stmt.Exec(ctx, q, args...)
		return err == nil && result.Affected > 0, nil, err
	}
	rows, err := numbers(ctx, q, r.stmt, append(args, channel, payload)...)
	for _, n := range rows {
		if n.of != nil {
			next = append(next, Next{n.of, n.n == 1})
		}
	}
	return len(rows) > 0, next, err
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Number is a write that returns a number.
type Number struct {
	stmt       core.Stmt
	byInsertID bool
}

// Run returns 0 if the statement returned no number.
func (s Number) Run(ctx context.Context, q core.Querier, args ...any) (n int64, err error) {
	if !s.byInsertID {
		_, err = s.stmt.QueryRow(ctx, q, []any{&n}, args...)
		return n, err
	}
	r, err := s.stmt.Exec(ctx, q, args...)
	if err != nil || r.Affected == 0 {
		return 0, err
	}
	return r.InsertID, nil
}

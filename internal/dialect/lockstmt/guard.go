package lockstmt

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Guard locks the row of one term in the caller's transaction.
type Guard struct {
	guard core.Stmt
	// write also writes the row, on a cluster where a lock does not reach other nodes.
	write core.Stmt
	// stale explains why guard found no row, if guard cannot report that itself.
	stale core.Stmt
	// byAttempt: guard tests the attempt, too.
	byAttempt bool
}

// GuardResult is the outcome of a Guard.
type GuardResult int

const (
	// Over: the row no longer has the term, or has a ticket that waits.
	Over GuardResult = iota
	// Stale: the transaction's snapshot is older than the term.
	Stale
	// OtherStore: the tables are not those that granted the term.
	OtherStore
	// Guarded: no later term is granted before the transaction ends.
	Guarded
)

// LeaseGuard compiles the guard of a lease, and TicketGuard that of a ticket.
func (t *Tables) LeaseGuard() Guard {
	d := &t.dialect.Leases
	return Guard{guard: t.Compile("guard", d.Guard), write: t.Compile("guard write", d.GuardWrite), byAttempt: true}
}

// TicketGuard compiles the guard of a ticket.
func (t *Tables) TicketGuard() Guard {
	d := &t.dialect.Tickets
	return Guard{guard: t.Compile("guard ticket", d.Guard), write: t.Compile("guard ticket write", d.GuardWrite), stale: t.Compile("stale", d.Stale)}
}

// Run guards a term, in the tables with the id store. A term without an attempt is that of any attempt that
// has its token.
func (g Guard) Run(ctx context.Context, q core.Querier, t TermID, store string) (GuardResult, error) {
	var shown int
	var id []byte
	args := t.Name.Args(t.Token)
	switch {
	case g.byAttempt && t.Attempt == AttemptID{}:
		args = append(args, nil)
	case g.byAttempt:
		args = append(args, t.Attempt[:])
	}
	found, err := g.guard.QueryRow(ctx, q, []any{&shown, &id}, args...)
	switch {
	case err != nil:
		return Over, err
	case !found && g.stale.Text != "":
		var stale int
		_, err = g.stale.QueryRow(ctx, q, []any{&stale}, t.Token)
		if stale == 1 {
			return Stale, err
		}
		return Over, err
	case !found || shown < 0: // below zero: a waiting ticket
		return Over, nil
	case shown == 0:
		return Stale, nil
	case string(id) != store:
		return OtherStore, nil
	case g.write.Text != "":
		_, err = g.write.Exec(ctx, q, t.Name.Args(t.Token)...)
	}
	return Guarded, err
}

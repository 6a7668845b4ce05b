package lockstmt

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Tickets are the statements of the tickets that differ in how engines report their results.
type Tickets struct {
	// Draw returns the last of new tokens. Enter returns how a ticket entered.
	Draw, Enter Number
	Renew       Renew
	Remaining   Remaining
}

// Tickets compiles the statements of the tickets.
func (t *Tables) Tickets() *Tickets {
	d := &t.dialect.Tickets
	return &Tickets{
		Draw: Number{t.Compile("draw", d.Draw), d.ByInsertID}, Enter: Number{t.Compile("enter", d.Enter), d.ByInsertID},
		Renew: Renew{t, d.Renew, t.dialect.Leases.Renewed}, Remaining: Remaining{t, d.Remaining},
	}
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

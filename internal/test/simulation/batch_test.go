package simulation

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
)

// overtaken runs a statement between the write of a batch of releases and the read of its rows.
type overtaken struct {
	alone

	between func() error
}

// Query implements core.Querier.
func (o overtaken) Query(ctx context.Context, text string, args ...any) (core.Rows, error) {
	if core.StatementName(ctx) == "locks.released" {
		if err := o.between(); err != nil {
			return nil, err
		}
	}
	return o.alone.Query(ctx, text, args...)
}

// TestBatchDoesNotForgetATerm releases, in one batch, a term and an attempt on the same lock that was given up, and that the
// server grants late, before the rows are read. The term was ended in time, so it may not count as lost.
func TestBatchDoesNotForgetATerm(t *testing.T) {
	s, q := statementsOf(&sqlite.Dialect, quoted), alone{newStore()}
	held := lockstmt.NewAttempt(names[0], lockstmt.AttemptID{1}, hour)
	late := lockstmt.NewAttempt(names[0], lockstmt.AttemptID{2}, hour)
	other := lockstmt.NewAttempt(names[1], lockstmt.AttemptID{3}, hour)
	if won, err := s.take(t.Context(), q, s.leases[0], held); err != nil || !won {
		t.Fatal(won, err)
	}
	batch := []lockstmt.TermID{{Name: held.Name, Attempt: held.ID, Token: q.rows["la"].token}, {Name: late.Name, Attempt: late.ID}, {Name: other.Name, Attempt: other.ID}}
	freed, _, err := s.leases[0].ReleaseMany.Run(t.Context(), overtaken{q, func() error {
		_, err := s.take(t.Context(), q, s.leases[0], late)
		return err
	}}, batch, selfOf(0), false)
	if err != nil || !freed[0].Ambiguous || freed[1].Was {
		t.Errorf("the term: %+v, the attempt that has the lock: %+v, %v", freed[0], freed[1], err)
	}
}

package lockstmt

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// Attempt is one attempt to acquire a lock.
type Attempt struct {
	Name  lockname.Name
	ID    AttemptID
	TTL   time.Duration
	Token int64 // the token of a ticket, which has it before it is granted
	// Ambiguous means that the answer of a statement was lost. That statement may still grant
	// the lock, perhaps a second time.
	Ambiguous bool
}

// Outcome is the outcome of a Grant.
type Outcome int

const (
	// Refused: the lock was not granted. Only its row shows why.
	Refused Outcome = iota
	// Held: another attempt has the lock. State describes it.
	Held
	// Granted: the attempt has the lock, with the Token of State.
	Granted
)

// Grant may grant one lock.
type Grant struct {
	stmt       core.Stmt
	byInsertID bool
	bound      dialect.Setting // of the wait
	look       Look
}

// Run makes one attempt. holder names the process.
func (g Grant) Run(ctx context.Context, q core.Querier, a Attempt, holder string) (outcome Outcome, s State, err error) {
	err = g.bound.During(ctx, q, takeBound, func() error {
		outcome, s, err = g.run(ctx, q, a.Name, a.Name.Args(a.ID[:], a.TTL.Microseconds(), holder))
		return err
	})
	return outcome, s, err
}

// RunFrom makes one attempt to get the lock from the attempt that has it, from.
func (g Grant) RunFrom(ctx context.Context, q core.Querier, from AttemptID, a Attempt, holder string) (Outcome, State, error) {
	return g.run(ctx, q, a.Name, a.Name.Args(a.ID[:], a.TTL.Microseconds(), holder, from[:]))
}

func (g Grant) run(ctx context.Context, q core.Querier, name lockname.Name, args []any) (Outcome, State, error) {
	if g.byInsertID {
		return g.write(ctx, q, name, args)
	}
	var s State
	var granted int
	var left int64
	found, err := g.stmt.QueryRow(ctx, q, []any{&granted, &s.Token, &left, &s.Holder}, args...)
	switch s.Left = micros(left); {
	case err != nil || !found:
		return Refused, State{}, err
	case granted == 1:
		return Granted, s, nil
	}
	return Held, s, nil
}

// write runs a statement whose insert id is the token.
func (g Grant) write(ctx context.Context, q core.Querier, name lockname.Name, args []any) (Outcome, State, error) {
	r, err := g.stmt.Exec(ctx, q, args...)
	switch {
	case err != nil || r.Affected != 1:
		return Refused, State{}, err
	case r.InsertID > 0:
		return Granted, State{Token: r.InsertID}, nil
	}
	s, _, err := g.look.Run(ctx, q, name) // a trigger may hide the insert id
	return Granted, s, err
}

// GrantMany may grant several locks.
type GrantMany struct {
	stmts   map[int]core.Stmt // by the number of locks
	granted map[int]core.Stmt // reads what a write has granted
	bound   dialect.Setting
}

// Run makes several attempts for one owner, and returns the tokens of those that were granted.
// wrote reports that locks may have been granted although Run failed.
func (g GrantMany) Run(ctx context.Context, q core.Querier, all []Attempt, holder string) (tokens map[AttemptID]int64, wrote bool, err error) {
	padded := core.Pad(all)
	n := len(padded)
	args := make([]any, 2+3*n)
	args[0], args[1] = padded[0].Name.Owner, holder
	for i := range padded {
		a := &padded[i]
		args[2+i], args[2+n+i], args[2+2*n+i] = a.Name.Row(), a.ID[:], a.TTL.Microseconds()
	}
	err = g.bound.During(ctx, q, takeBound, func() (err error) {
		read, from := g.stmts[n], args
		if granted, writes := g.granted[n]; writes {
			if _, err := g.stmts[n].Exec(ctx, q, args...); err != nil {
				return err
			}
			wrote = true
			read, from = granted, slices.Concat(args[:1], args[2:2+2*n])
		}
		tokens, err = byAttempt(ctx, q, read, from...)
		return err
	})
	return tokens, wrote, err
}

// takeBound bounds an attempt's wait for SQLite's write lock.
const takeBound = 10 * time.Millisecond

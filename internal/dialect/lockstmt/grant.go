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
	// HandedOut means that a handle of the term was made, so another attempt may have the term.
	HandedOut bool

	args [3]any // see bound
}

// NewAttempt returns an attempt to acquire a lock.
func NewAttempt(name lockname.Name, id AttemptID, ttl time.Duration) Attempt {
	a := Attempt{Name: name, ID: id, TTL: ttl}
	a.args = a.bound()
	return a
}

// bound returns the first arguments of all statements for an attempt: the owner, the row and the id.
// The statements of one that NewAttempt returned share them.
func (a *Attempt) bound() [3]any {
	if a.args[0] != nil {
		return a.args
	}
	b := a.Name.AppendRow(make([]byte, 0, 64))
	row := len(b)
	b = append(b, a.ID[:]...)
	return [3]any{a.Name.Owner, b[:row:row], b[row:]}
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
	holder     any // the text that names the process
	byInsertID bool
	bound      dialect.Setting // of the wait
	look       Look
}

// Run makes one attempt.
func (g *Grant) Run(ctx context.Context, q core.Querier, a Attempt) (outcome Outcome, s State, err error) {
	if g.bound.Before == nil {
		return g.run(ctx, q, a, nil)
	}
	err = g.bound.During(ctx, q, takeBound, func() error {
		outcome, s, err = g.run(ctx, q, a, nil)
		return err
	})
	return outcome, s, err
}

// RunFrom makes one attempt to get the lock from the attempt that has it, from.
func (g *Grant) RunFrom(ctx context.Context, q core.Querier, from AttemptID, a Attempt) (Outcome, State, error) {
	return g.run(ctx, q, a, from[:])
}

// granting is one run of a Grant: its arguments, and the row that it returns. Both are in one object,
// because an acquire allocates few others.
type granting struct {
	core.StmtRun

	args          [6]any
	granted, left int64
	state         State
	row           [4]any
}

func (g *Grant) run(ctx context.Context, q core.Querier, a Attempt, from []byte) (Outcome, State, error) {
	r := &granting{}
	first := a.bound()
	args := append(append(r.args[:0], first[:]...), a.TTL.Microseconds(), g.holder)
	if from != nil {
		args = append(args, from)
	}
	if g.byInsertID {
		return g.write(ctx, q, a.Name, r, args)
	}
	r.row = [4]any{&r.granted, &r.state.Token, &r.left, &r.state.Holder}
	found, err := r.QueryRow(ctx, &g.stmt, q, r.row[:], args)
	switch r.state.Left = micros(r.left); {
	case err != nil || !found:
		return Refused, State{}, err
	case r.granted == 1:
		return Granted, r.state, nil
	}
	return Held, r.state, nil
}

// write runs a statement whose insert id is the token.
func (g *Grant) write(ctx context.Context, q core.Querier, name lockname.Name, r *granting, args []any) (Outcome, State, error) {
	wrote, err := r.Exec(ctx, &g.stmt, q, args)
	switch {
	case err != nil || wrote.Affected != 1:
		return Refused, State{}, err
	case wrote.InsertID > 0:
		return Granted, State{Token: wrote.InsertID}, nil
	}
	s, _, err := g.look.Run(ctx, q, name) // a trigger may hide the insert id
	return Granted, s, err
}

// GrantMany may grant several locks.
type GrantMany struct {
	stmts   map[int]core.Stmt // by the number of locks
	granted map[int]core.Stmt // reads what a write has granted
	holder  any
	bound   dialect.Setting
}

// Run makes several attempts for one owner, and returns the tokens of those that were granted.
// wrote reports that locks may have been granted although Run failed.
func (g GrantMany) Run(ctx context.Context, q core.Querier, all []Attempt) (tokens map[AttemptID]int64, wrote bool, err error) {
	padded := core.Pad(all)
	n := len(padded)
	args := make([]any, 2+3*n)
	args[0], args[1] = padded[0].Name.Owner, g.holder
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

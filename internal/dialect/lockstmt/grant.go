package lockstmt

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Attempt is one attempt to acquire a lock.
type Attempt struct {
	Name  []byte
	Owner OwnerID
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
	// Held: another owner has the lock. State describes it.
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
	err = bounded(ctx, q, g.bound, func() error {
		outcome, s, err = g.run(ctx, q, a.Name, []any{a.Name, a.Owner[:], a.TTL.Microseconds(), holder})
		return err
	})
	return outcome, s, err
}

// RunFrom makes one attempt to get the lock from the owner from.
func (g Grant) RunFrom(ctx context.Context, q core.Querier, from OwnerID, a Attempt, holder string) (Outcome, State, error) {
	return g.run(ctx, q, a.Name, []any{a.Name, a.Owner[:], a.TTL.Microseconds(), holder, from[:]})
}

func (g Grant) run(ctx context.Context, q core.Querier, name []byte, args []any) (Outcome, State, error) {
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
func (g Grant) write(ctx context.Context, q core.Querier, name []byte, args []any) (Outcome, State, error) {
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

// Run makes several attempts, and returns the tokens of those that were granted. wrote reports
// that locks may have been granted although Run failed.
func (g GrantMany) Run(ctx context.Context, q core.Querier, all []Attempt, holder string) (tokens map[OwnerID]int64, wrote bool, err error) {
	padded := core.Pad(all)
	n := len(padded)
	args := make([]any, 1+3*n)
	args[0] = holder
	for i := range padded {
		a := &padded[i]
		args[1+i], args[1+n+i], args[1+2*n+i] = a.Name, a.Owner[:], a.TTL.Microseconds()
	}
	err = bounded(ctx, q, g.bound, func() (err error) {
		read, from := g.stmts[n], args
		if granted, writes := g.granted[n]; writes {
			if _, err := g.stmts[n].Exec(ctx, q, args...); err != nil {
				return err
			}
			wrote = true
			read, from = granted, args[1:1+2*n]
		}
		tokens, err = byOwner(ctx, q, read, from...)
		return err
	})
	return tokens, wrote, err
}

// takeBound bounds an attempt's wait for SQLite's write lock.
const takeBound = 10 * time.Millisecond

// bounded runs f, which takes a lock, with a bound on its wait.
func bounded(ctx context.Context, q core.Querier, bound dialect.Setting, f func() error) error {
	undo, err := bound.Change(ctx, q, takeBound)
	if err != nil {
		return err
	}
	err = f()
	if undo.Text != "" {
		if _, e := undo.Exec(context.WithoutCancel(ctx), q); err == nil {
			err = e
		}
	}
	return err
}

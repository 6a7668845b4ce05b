package lockstmt

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Freed is the outcome of ending a term. Was reports whether the row had this term. Notify
// reports whether other processes wait and must be notified, and Alone that none waits: on some
// engines neither is known. Ambiguous reports that an answer was lost, and that its statement may
// have ended the term.
type Freed struct{ Was, Ambiguous, Notify, Alone bool }

// Release ends a term.
type Release struct {
	stmt  core.Stmt
	self  any // the process, which is not counted among the waiters
	tells bool
}

// releasing is one run of a Release: its arguments, and the row that it returns.
type releasing struct {
	core.StmtRun

	args           [4]any
	ended, waiters int64
	row            [2]any
}

// Run ends the term of an attempt.
func (r *Release) Run(ctx context.Context, q core.Querier, a Attempt) (Freed, error) {
	run := &releasing{}
	first := a.bound()
	args := append(append(run.args[:0], first[:]...), r.self)
	if !r.tells {
		result, err := run.Exec(ctx, &r.stmt, q, args[:3])
		return Freed{Was: err == nil && result.Affected > 0}, err
	}
	run.row = [2]any{&run.ended, &run.waiters}
	if _, err := run.QueryRow(ctx, &r.stmt, q, run.row[:], args); err != nil {
		return Freed{}, err
	}
	return Freed{Was: run.ended > 0, Notify: run.waiters > 0, Alone: run.waiters == 0}, nil
}

// ReleaseMany ends several terms, except those whose rows are locked.
type ReleaseMany struct {
	stmts  map[int]core.Stmt // by the number of terms
	states map[int]core.Stmt // reads the rows after a write that did not end all terms
	tells  bool
}

// Run returns the outcomes by the index in all. The terms are of one owner. Terms that it does not
// return must be ended alone. repeated says that an earlier statement may have ended some of the terms. wrote
// reports that terms may have been ended although Run failed.
func (r ReleaseMany) Run(ctx context.Context, q core.Querier, all []TermID, self AttemptID, repeated bool) (freed map[int]Freed, wrote bool, err error) {
	owner, names, attempts := split(all)
	n, args := len(names), slices.Concat([]any{owner}, names, attempts)
	if r.tells {
		waiters, err := byAttempt(ctx, q, r.stmts[n], append(args, self[:])...)
		return told(all, waiters, repeated), false, err
	}
	result, err := r.stmts[n].Exec(ctx, q, args...)
	if err != nil {
		return nil, false, err
	}
	if result.Affected == int64(len(all)) {
		return same(all, Freed{Was: true, Ambiguous: repeated}), false, nil
	}
	states, err := numbers(ctx, q, r.states[n], args...)
	if err != nil {
		return nil, true, err
	}
	now := make(map[string]int64, len(states))
	for _, s := range states {
		now[string(s.of)] = s.n
	}
	return judge(all, now, result.Affected, repeated), true, nil
}

// told returns the outcomes of a statement that returned, for each term that it ended, whether
// others wait.
func told(all []TermID, waiters map[AttemptID]int64, repeated bool) map[int]Freed {
	freed := map[int]Freed{}
	for i, t := range all {
		if n, ended := waiters[t.Attempt]; ended || repeated {
			freed[i] = Freed{Was: ended, Ambiguous: repeated, Notify: n > 0, Alone: n == 0}
		}
	}
	return freed
}

// judge returns the outcomes of a write that ended some of the terms, from the states of their
// rows afterwards: the token of a free row, 0 for a row that still has its attempt.
func judge(all []TermID, now map[string]int64, ended int64, repeated bool) map[int]Freed {
	freed := map[int]Freed{}
	// Free rows have the term's token. Rows that are gone belong to others: if no term was ended here,
	// all were lost before; if as many were, none.
	var free, again, gone []int
	for i, t := range all {
		switch n, there := now[string(t.Name.Row())]; {
		case there && n == 0: // locked
			if sharesRow(all, i) { // or granted to another attempt of the list since
				again = append(again, i)
			}
		case there && n == t.Token:
			free = append(free, i)
		default:
			gone = append(gone, i)
		}
	}
	here := ended > 0
	ended -= int64(len(free))
	for _, i := range free { // one that was taken away is free as well
		freed[i] = Freed{Was: here || repeated, Ambiguous: repeated || here && ended < 0}
	}
	elsewhere := here && ended != 0 // some were ended whose rows have changed since
	for _, i := range gone {
		freed[i] = Freed{Was: elsewhere && !repeated && ended == int64(len(gone)) && len(again) == 0, Ambiguous: repeated || elsewhere}
	}
	if repeated || elsewhere {
		for _, i := range again {
			freed[i] = Freed{Ambiguous: true}
		}
	}
	return freed
}

// sharesRow reports whether another term of the list is of the same lock.
func sharesRow(all []TermID, i int) bool {
	for j, t := range all {
		if j != i && t.Name == all[i].Name {
			return true
		}
	}
	return false
}

func same(all []TermID, f Freed) map[int]Freed {
	freed := make(map[int]Freed, len(all))
	for i := range all {
		freed[i] = f
	}
	return freed
}

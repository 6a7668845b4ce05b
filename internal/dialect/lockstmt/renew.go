package lockstmt

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// Renew extends several live terms, except those whose rows are locked.
type Renew struct {
	tables  *Tables
	text    string
	returns bool // it returns the attempts of the renewed terms
}

// Run returns which terms, of one owner, it renewed. On some engines it returns none if it did not renew all
// of them.
func (r Renew) Run(ctx context.Context, q core.Querier, ttl time.Duration, all []TermID) (map[AttemptID]bool, error) {
	owner, names, attempts := split(all)
	stmt := r.tables.List("renew", r.text, 2, len(names))
	args := slices.Concat([]any{owner, ttl.Microseconds()}, names, attempts)
	renewed := make(map[AttemptID]bool, len(all))
	if r.returns {
		found, err := byAttempt(ctx, q, stmt, args...)
		for id := range found {
			renewed[id] = true
		}
		return renewed, err
	}
	result, err := stmt.Exec(ctx, q, args...)
	if err == nil && result.Affected == int64(len(all)) {
		for _, t := range all {
			renewed[t.Attempt] = true
		}
	}
	return renewed, err
}

// Remaining reads how long several terms last.
type Remaining struct {
	tables *Tables
	text   string
}

// Run returns the time until each term, of one owner, expires. Terms that have ended are missing.
func (r Remaining) Run(ctx context.Context, q core.Querier, all []TermID) (map[AttemptID]time.Duration, error) {
	owner, names, attempts := split(all)
	found, err := byAttempt(ctx, q, r.tables.List("remaining", r.text, 1, len(names)), slices.Concat([]any{owner}, names, attempts)...)
	left := make(map[AttemptID]time.Duration, len(found))
	for id, n := range found {
		left[id] = micros(n)
	}
	return left, err
}

// Waits reads how long several locks remain held.
type Waits struct {
	tables *Tables
	text   string
}

// Run returns the attempt and the token of each lock of an owner, and the time until it expires: 0
// for a free lock.
// Locks without a row are missing.
func (w Waits) Run(ctx context.Context, q core.Querier, names []lockname.Name) (map[lockname.Name]State, error) {
	args, n := ofNames(names)
	rows, err := w.tables.List("waits", w.text, 1, n).Query(ctx, q, args...)
	if err != nil {
		return nil, err
	}
	states := make(map[lockname.Name]State, n)
	_, err = core.Collect(rows, func(row core.Row) (none struct{}, err error) {
		var of []byte
		var s State
		var left int64
		if err = row.Scan(&of, &s.Attempt, &s.Token, &left); err == nil {
			s.Left = micros(left)
			if name, ok := lockname.Parse(names[0].Owner, of); ok {
				states[name] = s
			}
		}
		return none, err
	})
	return states, err
}

// WaiterLife is how long the row of a waiting process lasts. It writes it again and again.
const WaiterLife = 3 * time.Second

// Waited reads which locks calls wait for.
type Waited struct {
	tables     *Tables
	name, text string
}

// Run returns those of the locks of an owner for which calls wait. For leases, those of the process self do not
// count.
func (r Waited) Run(ctx context.Context, q core.Querier, names []lockname.Name, self ...AttemptID) (map[lockname.Name]bool, error) {
	args, n := ofNames(names)
	for _, id := range self {
		args = append(args, id[:])
	}
	text := strings.NewReplacer("{waiter}", param(1+n), "{life}", strconv.FormatInt(WaiterLife.Microseconds(), 10)).Replace(r.text)
	rows, err := numbers(ctx, q, r.tables.List(r.name, text, 1, n), args...)
	waited := make(map[lockname.Name]bool, len(rows))
	for _, row := range rows {
		if name, ok := lockname.Parse(names[0].Owner, row.of); ok {
			waited[name] = true
		}
	}
	return waited, err
}

// ofNames returns the parameters of a statement for several locks of one owner, and the number of
// names in them.
func ofNames(names []lockname.Name) (args []any, n int) {
	padded := core.Pad(names)
	args = []any{padded[0].Owner}
	for _, name := range padded {
		args = append(args, name.Row())
	}
	return args, len(padded)
}

package lockstmt

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Renew extends several live terms, except those whose rows are locked.
type Renew struct {
	tables  *Tables
	text    string
	returns bool // it returns the owners of the renewed terms
}

// Run returns which terms it renewed. On some engines it returns none if it did not renew all
// of them.
func (r Renew) Run(ctx context.Context, q core.Querier, ttl time.Duration, all []Row) (map[OwnerID]bool, error) {
	names, owners := split(all)
	stmt := r.tables.List("renew", r.text, 2, len(names))
	args := slices.Concat([]any{ttl.Microseconds()}, names, owners)
	renewed := make(map[OwnerID]bool, len(all))
	if r.returns {
		found, err := byOwner(ctx, q, stmt, args...)
		for o := range found {
			renewed[o] = true
		}
		return renewed, err
	}
	result, err := stmt.Exec(ctx, q, args...)
	if err == nil && result.Affected == int64(len(all)) {
		for _, t := range all {
			renewed[t.Owner] = true
		}
	}
	return renewed, err
}

// Remaining reads how long several terms last.
type Remaining struct {
	tables *Tables
	text   string
}

// Run returns the time until each term expires. Terms that have ended are missing.
func (r Remaining) Run(ctx context.Context, q core.Querier, all []Row) (map[OwnerID]time.Duration, error) {
	names, owners := split(all)
	found, err := byOwner(ctx, q, r.tables.List("remaining", r.text, 1, len(names)), slices.Concat(names, owners)...)
	left := make(map[OwnerID]time.Duration, len(found))
	for o, n := range found {
		left[o] = micros(n)
	}
	return left, err
}

// Waits reads how long several locks remain held.
type Waits struct {
	tables *Tables
	text   string
}

// Run returns the time until each lock expires, by its name, and 0 for a free lock. Locks
// without a row are missing.
func (w Waits) Run(ctx context.Context, q core.Querier, names [][]byte) (map[string]time.Duration, error) {
	padded := core.Pad(names)
	args := make([]any, len(padded))
	for i, name := range padded {
		args[i] = name
	}
	rows, err := numbers(ctx, q, w.tables.List("waits", w.text, 1, len(args)), args...)
	left := make(map[string]time.Duration, len(rows))
	for _, r := range rows {
		left[string(r.of)] = micros(r.n)
	}
	return left, err
}

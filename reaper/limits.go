package reaper

import (
	"context"
	"math"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// limitEntries is the task on entries of limits that have ended and are to be forgotten. The second
// column of their key is the id, and they are found by their expiry.
type limitEntries struct{ *pairs }

func newLimitEntries(table string, d *dialect.Dialect) limitEntries {
	t := newPairs("limit_entries", table, 0, d, d.Sweep.LimitEntries)
	t.write.second = func(f row) any { return append([]byte{}, f.waiter...) } // never NULL
	t.into = func(f *row) any { return &f.waiter }
	return limitEntries{t}
}

func (t limitEntries) find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error) {
	if after == nil {
		after = &row{expired: math.MinInt64, key: []byte{}}
	}
	rows, err := t.list.Query(ctx, q, cutoff, after.expired, after.owner, after.key, t.write.second(*after), limit)
	if err != nil {
		return nil, nil, err
	}
	found, err = scan(rows, func(f *row) []any { return []any{&f.owner, &f.key, &f.waiter, &f.expired} })
	return found, following(found, limit), err
}

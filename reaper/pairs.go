package reaper

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// pairs is a task on rows whose key is an owner, a name and a second column.
type pairs struct {
	label, at   string
	grace       int64 // µs
	total, list core.Stmt
	write       listStmt
	// into returns the target to scan the second column into.
	into func(f *row) any
}

// newWaiters returns the task on waiters whose processes died.
func newWaiters(table string, d *dialect.Dialect) *pairs {
	t := newPairs("waiters", table, 0, d, d.Sweep.Waiters)
	t.write.second = func(f row) any { return append([]byte{}, f.waiter...) } // never NULL
	t.into = func(f *row) any { return &f.waiter }
	return t
}

// newTickets returns the task on expired tickets that no later ticket has cleared.
func newTickets(table string, grace time.Duration, d *dialect.Dialect) *pairs {
	t := newPairs("tickets", table, grace.Microseconds(), d, d.Sweep.Tickets)
	t.write.second = func(f row) any { return f.token }
	t.into = func(f *row) any { return &f.token }
	return t
}

func newPairs(label, table string, grace int64, d *dialect.Dialect, sql dialect.SweepPairs) *pairs {
	text := func(s string) string { return strings.ReplaceAll(s, "{rows}", table) }
	return &pairs{
		label: label, at: table, grace: grace,
		write: listStmt{dialect: d, name: "sweep." + label + ".write", text: text(sql.Write), group: sql.Group},
		total: d.Compile("sweep."+label+".count", text(sql.Count)),
		list:  d.Compile("sweep."+label+".find", text(sql.Find)),
	}
}

func (t *pairs) name() string  { return t.label }
func (t *pairs) table() string { return t.at }

func (t *pairs) prepare(*pass, []row) error { return nil }

func (t *pairs) count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error) {
	_, err = t.total.QueryRow(ctx, q, []any{&rows, &oldest}, cutoff-t.grace)
	return rows, oldest, err
}

func (t *pairs) find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error) {
	if after == nil {
		after = &row{key: []byte{}}
	}
	rows, err := t.list.Query(ctx, q, cutoff-t.grace, after.owner, after.key, t.write.second(*after), limit)
	if err != nil {
		return nil, nil, err
	}
	found, err = scan(rows, func(f *row) []any { return []any{&f.owner, &f.key, t.into(f), &f.expired} })
	return found, following(found, limit), err
}

func (t *pairs) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	return t.write.exec(ctx, q, found, cutoff-t.grace)
}

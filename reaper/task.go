package reaper

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// task is one kind of row that expires. The pass handles cutoff, clock, batches, pace, retries
// and the report.
type task interface {
	name() string
	table() string
	// count returns how many rows are due and when the oldest of them expired.
	count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error)
	// find lists due rows in an order of the task's own, and returns the row after which to
	// continue. A nil after is the beginning, a nil next the end. find must not lock.
	find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error)
	// prepare commits what must be committed before these rows are cleared.
	prepare(p *pass, found []row) error
	// clear clears the rows that are still due, in the order of their keys. It runs in a
	// separate transaction and may run more than once.
	clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (cleared int64, err error)
}

// row is a due row: its owner, its key, its expiry, and a lock's token. A ticket's key is the name
// and the token. A waiter's key is the name and the waiter.
type row struct {
	owner          string
	key, waiter    []byte
	expired, token int64
	values         []any // the key of a row of the program's own table
}

// records is a task on idempotency records.
type records struct {
	label, at   string
	total, list core.Stmt
	write       listStmt
}

func newRecords(label, table string, d *dialect.Dialect, t dialect.SweepTask) *records {
	text := func(s string) string { return strings.ReplaceAll(s, "{records}", table) }
	return &records{
		label: label, at: table,
		write: listStmt{dialect: d, name: "sweep." + label + ".write", text: text(t.Write), group: t.Group},
		total: d.Compile("sweep."+label+".count", text(t.Count)),
		list:  d.Compile("sweep."+label+".find", text(t.Find)),
	}
}

func (t *records) name() string  { return t.label }
func (t *records) table() string { return t.at }

func (t *records) prepare(*pass, []row) error { return nil }

func (t *records) count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error) {
	_, err = t.total.QueryRow(ctx, q, []any{&rows, &oldest}, cutoff)
	return rows, oldest, err
}

func (t *records) find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error) {
	if after == nil {
		after = &row{expired: math.MinInt64, key: []byte{}}
	}
	rows, err := t.list.Query(ctx, q, cutoff, after.expired, after.owner, after.key, limit)
	if err != nil {
		return nil, nil, err
	}
	found, err = scan(rows, func(f *row) []any { return []any{&f.owner, &f.key, &f.expired} })
	return found, following(found, limit), err
}

// following returns the row after which to continue, or nil if the list is shorter than limit.
func following(found []row, limit int) *row {
	if len(found) < limit {
		return nil
	}
	return &found[len(found)-1]
}

// repeats reports whether a read that continued after f came to f again, as when the engine rounds
// an expiry or compares a key's value as another type. Such reads would never end.
func (f *row) repeats(next *row, found []row) bool {
	same := func(other row) bool { return reflect.DeepEqual(*f, other) }
	return f != nil && (same(*next) || slices.ContainsFunc(found, same))
}

func scan(rows core.Rows, dest func(f *row) []any) ([]row, error) {
	return core.Collect(rows, func(r core.Row) (f row, err error) {
		err = r.Scan(dest(&f)...)
		return f, err
	})
}

func (t *records) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	return t.write.exec(ctx, q, found, cutoff)
}

// listStmt is a write of the rows of a batch. {picked} in its text is the condition for them: a
// group for each owner. second, if given, returns the second column of a row's key.
type listStmt struct {
	dialect           *dialect.Dialect
	name, text, group string
	second            func(f row) any
}

// exec runs the statement with the other parameters, which come first, and the rows in the order
// of their keys. Each list is padded to a power of two.
func (s *listStmt) exec(ctx context.Context, q core.Querier, found []row, others ...any) (affected int64, err error) {
	stmt, args := s.bind(found, others)
	r, err := stmt.Exec(ctx, q, args...)
	return r.Affected, err
}

// query runs the statement as exec does, and returns its rows.
func (s *listStmt) query(ctx context.Context, q core.Querier, found []row, others ...any) (core.Rows, error) {
	stmt, args := s.bind(found, others)
	return stmt.Query(ctx, q, args...)
}

func (s *listStmt) bind(found []row, others []any) (stmt core.Stmt, args []any) {
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b row) int {
		return cmp.Or(strings.Compare(a.owner, b.owner), bytes.Compare(a.key, b.key), bytes.Compare(a.waiter, b.waiter), cmp.Compare(a.token, b.token))
	})
	args = slices.Clip(others)
	param := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(len(args))
	}
	var groups []string
	for len(found) > 0 {
		n := 1
		for n < len(found) && found[n].owner == found[0].owner {
			n++
		}
		owner := param(found[0].owner)
		var keys, pairs []string
		for _, f := range core.Pad(found[:n]) {
			key := param(f.key)
			keys = append(keys, key)
			if s.second != nil {
				pairs = append(pairs, "("+key+", "+param(s.second(f))+")")
			}
		}
		groups = append(groups, strings.NewReplacer("{owner}", owner, "{keys}", strings.Join(keys, ", "), "{pairs}", strings.Join(pairs, ", ")).Replace(s.group))
		found = found[n:]
	}
	text := strings.ReplaceAll(s.text, "{picked}", strings.Join(groups, " OR "))
	return s.dialect.Compile(s.name, text), args
}

package reaper

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// task is one kind of row that expires. The pass does the rest: cutoff, clock,
// batches, pace, retries, report.
type task interface {
	name() string
	table() string
	// count says how many rows are due and when the oldest of them expired.
	count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error)
	// find lists rows that are due, in an order of the task's own, and says
	// after what to go on; nil is the beginning, and the end. It must not lock.
	find(ctx context.Context, q core.Querier, cutoff int64, after *row, limit int) (found []row, next *row, err error)
	// prepare commits what has to be before these rows are cleared.
	prepare(p *pass, found []row) error
	// clear runs in a transaction of its own and clears those rows which are
	// still due, in the order of their keys. It may run more than once.
	clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (cleared int64, err error)
}

// row is a row that is due: its primary key, when it expired, and a lock's token.
// The key of a place in line is completed by its token, that of one who waits by
// the waiter, that of a row of the user's own by no other.
type row struct {
	key, waiter    []byte
	expired, token int64
	values         []any // the key of a row of the user's own
}

func keys(found []row) [][]byte {
	list := make([][]byte, len(found))
	for i, f := range found {
		list[i] = f.key
	}
	slices.SortFunc(list, bytes.Compare)
	return list
}

// records is a task on the idempotency records.
type records struct {
	label, at   string
	total, list core.Stmt
	write       listStmt
}

func newRecords(label, table string, d *dialect.Dialect, t dialect.SweepTask) *records {
	text := func(s string) string { return strings.ReplaceAll(s, "{records}", table) }
	return &records{
		label: label, at: table,
		write: listStmt{d, "sweep." + label + ".write", text(t.Write), "{keys}"},
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
	rows, err := t.list.Query(ctx, q, cutoff, after.expired, after.key, limit)
	if err != nil {
		return nil, nil, err
	}
	found, err = scan(rows, func(f *row) []any { return []any{&f.key, &f.expired} })
	return found, following(found, limit), err
}

// following is where to go on after a list that is as long as it may be.
func following(found []row, limit int) *row {
	if len(found) < limit {
		return nil
	}
	return &found[len(found)-1]
}

func scan(rows core.Rows, dest func(f *row) []any) (found []row, err error) {
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for rows.Next() {
		var f row
		if err := rows.Scan(dest(&f)...); err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, rows.Err()
}

func (t *records) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	return t.write.exec(ctx, q, keys(found), cutoff)
}

// listStmt is a write whose list of parameters is as long as the batch.
type listStmt struct {
	dialect          *dialect.Dialect
	name, text, list string
}

// exec runs it with the other parameters, which come first. The list's length is
// rounded up to a power of two: batches of every size would fill the drivers'
// caches of prepared statements.
func (s *listStmt) exec(ctx context.Context, q core.Querier, keys [][]byte, others ...any) (affected int64, err error) {
	args := arguments(keys, others...)
	list := make([]string, len(args)-len(others))
	for i := range list {
		list[i] = "$" + strconv.Itoa(len(others)+i+1)
	}
	text := strings.ReplaceAll(s.text, s.list, strings.Join(list, ", "))
	r, err := s.dialect.Compile(s.name, text).Exec(ctx, q, args...)
	return r.Affected, err
}

// arguments repeats the last key to the length of the statement's list.
func arguments(keys [][]byte, others ...any) []any {
	args := append(make([]any, 0, len(others)+listLength(len(keys))), others...)
	for i := range listLength(len(keys)) {
		args = append(args, keys[min(i, len(keys)-1)])
	}
	return args
}

func listLength(n int) int {
	length := 1
	for length < n {
		length *= 2
	}
	return length
}

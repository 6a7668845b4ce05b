package reaper

import (
	"bytes"
	"context"
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
	// count says how many rows are due and when the oldest of them expired.
	count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error)
	// find lists rows that are due, after a given one, in the order of their
	// expiry. It must not lock.
	find(ctx context.Context, q core.Querier, cutoff int64, after row, limit int) ([]row, error)
	// clear runs in a transaction of its own and clears those rows which are
	// still due, in the order of their keys. It may run more than once.
	clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (cleared int64, err error)
}

// row is a row that is due: its primary key and when it expired.
type row struct {
	key     []byte
	expired int64
}

// records is a task on the idempotency records.
type records struct {
	label       string
	total, list core.Stmt
	write       string
	dialect     *dialect.Dialect
}

func newRecords(label, table string, d *dialect.Dialect, t dialect.SweepTask) *records {
	text := func(s string) string { return strings.ReplaceAll(s, "{records}", table) }
	return &records{
		label: label, dialect: d, write: text(t.Write),
		total: d.Compile("sweep."+label+".count", text(t.Count)),
		list:  d.Compile("sweep."+label+".find", text(t.Find)),
	}
}

func (t *records) name() string { return t.label }

func (t *records) count(ctx context.Context, q core.Querier, cutoff int64) (rows, oldest int64, err error) {
	_, err = t.total.QueryRow(ctx, q, []any{&rows, &oldest}, cutoff)
	return rows, oldest, err
}

func (t *records) find(ctx context.Context, q core.Querier, cutoff int64, after row, limit int) (found []row, err error) {
	rows, err := t.list.Query(ctx, q, cutoff, after.expired, after.key, limit)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for rows.Next() {
		var f row
		if err := rows.Scan(&f.key, &f.expired); err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, rows.Err()
}

func (t *records) clear(ctx context.Context, q core.Querier, cutoff int64, found []row) (int64, error) {
	keys := make([][]byte, len(found))
	for i, f := range found {
		keys[i] = f.key
	}
	slices.SortFunc(keys, bytes.Compare)
	r, err := t.writeOf(len(keys)).Exec(ctx, q, arguments(cutoff, keys)...)
	return r.Affected, err
}

// writeOf is the statement for n keys, rounded up to a power of two: batches
// of every size would fill the drivers' caches of prepared statements.
func (t *records) writeOf(n int) core.Stmt {
	list := make([]string, listLength(n))
	for i := range list {
		list[i] = "$" + strconv.Itoa(i+2)
	}
	return t.dialect.Compile("sweep."+t.label+".write", strings.ReplaceAll(t.write, "{keys}", strings.Join(list, ", ")))
}

// arguments repeats the last key to the length of the statement's list.
func arguments(cutoff int64, keys [][]byte) []any {
	args := append(make([]any, 0, 1+listLength(len(keys))), cutoff)
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

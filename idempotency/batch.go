package idempotency

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// batchParams bounds the parameters of one statement: SQLite takes 32,766.
const (
	batchParams = 16_000
	batchRows   = 1000
)

// Verdict is what became of one row of a batch.
type Verdict[R any] struct {
	// Outcome is Executed where the row was inserted and the caller does its
	// work, and Replayed where it was there already.
	Outcome Outcome
	// Row is the row given, or the one that was there.
	Row R
	// Err is ErrMismatch, as a *MismatchError, where the row that was there
	// belongs to another request; then Outcome says nothing.
	Err error
}

// ClaimAllTx claims many rows in the caller's transaction, as those of a
// settlement file, in a few statements for each thousand, and returns a verdict
// for each row, in their order. It does what ClaimTx does for one row after the
// other; a key that comes twice in the batch is executed once and replayed
// then. Rows that others are claiming are waited for, as long as the
// transaction's lock timeout allows.
//
// Mismatches are verdicts, and the transaction goes on. After every error
// Holdfast has rolled tx back and no row is claimed; [holdfast.ErrRetry] asks
// for a new one, as when two such batches meet.
func (t *Table[R, Tx]) ClaimAllTx(ctx context.Context, tx Tx, rows []R) (verdicts []Verdict[R], err error) {
	ctx, span := tell(ctx, t.access.Trace, "business_row.claim_all_tx", t.spec.Table)
	defer func() {
		span.Rows = int64(len(rows))
		span.End(err, func(err error) string { return outcomeOf(Executed, err) })
	}()
	q, err := t.access.Join(tx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
			defer cancel()
			_ = t.access.Rollback(ctx, tx)
		}
	}()
	verdicts = make([]Verdict[R], len(rows))
	first, order, err := t.distinct(rows)
	if err != nil {
		return nil, err
	}
	if err := t.access.Alive(ctx, q); err != nil {
		return nil, err
	}
	size := max(1, min(batchRows, batchParams/len(t.fields)))
	for chunk := range slices.Chunk(order, size) {
		b := &batch[R, Tx]{t: t, q: q, rows: rows, verdicts: verdicts}
		if err := b.claim(ctx, chunk); err != nil {
			if t.db.Retryable(err) {
				err = &holdfast.RetryError{Attempts: 1, Err: err}
			}
			return nil, err
		}
	}
	for i := range rows {
		if f := first[i]; f != i { // the same key came before
			verdicts[i] = t.verdict(rows[i], verdicts[f].Row)
		}
	}
	return verdicts, nil
}

// distinct finds, for each row, the first one with its key, and lists those
// that are first in the order of their keys: two batches that share rows then
// meet in the same order.
func (t *Table[R, Tx]) distinct(rows []R) (first, order []int, err error) {
	first = make([]int, len(rows))
	seen := make(map[hash]int, len(rows))
	keys := make([]hash, len(rows))
	for i, row := range rows {
		if keys[i], err = t.hash(row); err != nil {
			return nil, nil, err
		}
		f, again := seen[keys[i]]
		if !again {
			f = i
			seen[keys[i]] = i
			order = append(order, i)
		}
		first[i] = f
	}
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(keys[a][:], keys[b][:]) })
	return first, order, nil
}

func (t *Table[R, Tx]) verdict(row, there R) Verdict[R] {
	if err := t.same(row, there); err != nil {
		return Verdict[R]{Row: there, Err: err}
	}
	return Verdict[R]{Row: there, Outcome: Replayed}
}

// batch claims rows of one call.
type batch[R, Tx any] struct {
	t        *Table[R, Tx]
	q        core.Querier
	rows     []R
	verdicts []Verdict[R]
}

// claim inserts all rows at once. Where some are there already, those are read
// with a lock and the others inserted again; what still meets somebody else's
// row is claimed in halves, down to single rows.
func (b *batch[R, Tx]) claim(ctx context.Context, of []int) error {
	all, err := b.insert(ctx, of)
	if err != nil || all {
		return err
	}
	if len(of) == 1 {
		return b.single(ctx, of[0])
	}
	rest, err := b.replay(ctx, of)
	if err != nil || len(rest) == 0 {
		return err
	}
	if len(rest) < len(of) {
		return b.claim(ctx, rest)
	}
	for _, half := range [][]int{rest[:len(rest)/2], rest[len(rest)/2:]} {
		if err := b.claim(ctx, half); err != nil {
			return err
		}
	}
	return nil
}

// insert inserts all of the rows, or none of them.
func (b *batch[R, Tx]) insert(ctx context.Context, of []int) (all bool, err error) {
	t := b.t
	rows := &t.access.Dialect.Rows
	partly := rows.Verdict != dialect.ByDuplicate // those that are there are left out
	if partly {
		if _, err := (core.Stmt{Name: "row.savepoint", Text: `SAVEPOINT holdfast_batch`}).Exec(ctx, b.q); err != nil {
			return false, err
		}
	}
	var args []any
	for _, i := range of {
		args = append(args, t.values(b.rows[i], t.fields)...)
	}
	r, err := t.insertMany(len(of)).Exec(ctx, b.q, args...)
	switch class := t.access.Dialect.Classify(err); {
	case class == dialect.Duplicate && !partly:
		return false, nil // the statement is undone
	case class == dialect.Duplicate:
		return false, fmt.Errorf("%w: %w", ErrOtherKey, err)
	case err != nil:
		return false, err
	}
	all = !partly || r.Affected == int64(len(of))
	if partly {
		end := `RELEASE SAVEPOINT holdfast_batch`
		if !all {
			end = `ROLLBACK TO SAVEPOINT holdfast_batch`
		}
		if _, err := (core.Stmt{Name: "row.savepoint end", Text: end}).Exec(ctx, b.q); err != nil {
			return false, err
		}
	}
	if !all {
		return false, nil
	}
	for _, i := range of {
		b.verdicts[i] = Verdict[R]{Row: b.rows[i], Outcome: Executed}
	}
	return true, b.unchanged(ctx, of)
}

// unchanged is the table's, for many rows.
func (b *batch[R, Tx]) unchanged(ctx context.Context, of []int) error {
	if b.t.keeps {
		return nil
	}
	there, err := b.read(ctx, of, "")
	if err != nil {
		return err
	}
	for _, i := range of {
		key, err := b.t.hash(b.rows[i])
		if err != nil {
			return err
		}
		if row, found := there[key]; !found || len(differing(b.t.key, b.rows[i], row)) > 0 {
			if err := b.t.unchanged(ctx, b.q, b.rows[i]); err != nil { // two hashes may be one key
				return err
			}
		}
	}
	return nil
}

// replay gives their verdicts to rows that are there, and returns the others.
func (b *batch[R, Tx]) replay(ctx context.Context, of []int) (rest []int, err error) {
	there, err := b.read(ctx, of, b.t.access.Dialect.Rows.LockClause)
	if err != nil {
		return nil, err
	}
	for _, i := range of {
		key, err := b.t.hash(b.rows[i])
		if err != nil {
			return nil, err
		}
		if row, found := there[key]; found {
			b.verdicts[i] = b.t.verdict(b.rows[i], row)
		} else {
			rest = append(rest, i)
		}
	}
	return rest, nil
}

// single claims one row as ClaimTx does.
func (b *batch[R, Tx]) single(ctx context.Context, i int) error {
	row := b.rows[i]
	won, err := b.t.claim(ctx, b.q, row)
	if err == nil && won {
		b.verdicts[i] = Verdict[R]{Row: row, Outcome: Executed}
		return b.t.unchanged(ctx, b.q, row)
	}
	if err != nil {
		return err
	}
	var there R
	found, err := b.t.find(ctx, b.q, b.t.lock, row, &there)
	if err == nil && !found {
		err = ErrOtherKey
	}
	b.verdicts[i] = b.t.verdict(row, there)
	return err
}

// read reads the rows that have one of the keys, by their hashes.
func (b *batch[R, Tx]) read(ctx context.Context, of []int, lock string) (there map[hash]R, err error) {
	t := b.t
	var args []any
	for _, i := range of {
		args = append(args, t.values(b.rows[i], t.key)...)
	}
	rows, err := t.readMany(len(of), lock).Query(ctx, b.q, args...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	there = make(map[hash]R, len(of))
	for rows.Next() {
		var row R
		if err := rows.Scan(t.fields.Dest(reflect.ValueOf(&row).Elem())...); err != nil {
			return nil, err
		}
		key, err := t.hash(row)
		if err != nil {
			return nil, err
		}
		there[key] = row
	}
	return there, rows.Err()
}

// insertMany is the claim's statement for n rows.
func (t *Table[R, Tx]) insertMany(n int) core.Stmt {
	columns := len(t.fields)
	tuples := make([]string, n)
	for i := range tuples {
		tuples[i] = tuple(i*columns+1, columns)
	}
	one := t.access.Dialect.Rows.Insert(t.table.Quoted, t.access.Dialect.Idents(t.fields.Names()), t.access.Dialect.Idents(t.spec.Key))
	return t.access.Dialect.Compile("row.claim", strings.Replace(one, tuple(1, columns), strings.Join(tuples, ", "), 1))
}

// readMany is the read for n keys.
func (t *Table[R, Tx]) readMany(n int, lock string) core.Stmt {
	d := t.access.Dialect
	keys := make([]string, n)
	for i := range keys {
		keys[i] = tuple(i*len(t.key)+1, len(t.key))
	}
	return d.Compile("row.lock", `SELECT `+strings.Join(d.Idents(t.fields.Names()), ", ")+` FROM `+t.table.Quoted+
		` WHERE (`+strings.Join(d.Idents(t.spec.Key), ", ")+`) IN (`+d.Rows.Tuples+strings.Join(keys, ", ")+`)`+lock)
}

// tuple is ($from, $from+1, …) of n parameters.
func tuple(from, n int) string {
	p := make([]string, n)
	for i := range p {
		p[i] = "$" + strconv.Itoa(from+i)
	}
	return "(" + strings.Join(p, ", ") + ")"
}

package businessrow

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// batchParams bounds the parameters of one statement: SQLite accepts 32,766.
const (
	batchParams = 16_000
	batchRows   = 1000
)

// Answer is the outcome for one row of a batch.
type Answer[R any] struct {
	// Outcome is Executed if the row was inserted and the caller must do its work, and Replayed if
	// the row existed already.
	Outcome idempotency.Outcome
	// Row is the given row, or the existing one.
	Row R
	// Err is ErrMismatch, as a *MismatchError, if the existing row belongs to another request.
	// Outcome has no meaning then.
	Err error
}

// ClaimAllTx claims many rows in the caller's transaction, for example the rows of a settlement
// file. It uses a few statements per thousand rows and returns an answer for each row, in the
// order of rows. The effect is that of calling ClaimTx for each row in turn. If a key occurs twice
// in the batch, the first row is executed and the second replayed. ClaimAllTx waits for rows that
// other transactions are claiming, as long as the transaction's lock timeout allows.
//
// Mismatches are answers, and the transaction can continue. After every error Holdfast has rolled
// tx back and no row is claimed. [holdfast.ErrRetry] asks for a new transaction, for example after
// a deadlock of two such batches.
func (t *Table[R, Tx]) ClaimAllTx(ctx context.Context, tx Tx, rows []R) (answers []Answer[R], err error) {
	ctx, span := once.StartSpan(ctx, t.access.Trace, "business_row.claim_all_tx", t.spec.Table)
	defer func() {
		span.Rows = int64(len(rows))
		span.End(err, func(err error) string { return outcomeOf(idempotency.Executed, err) })
	}()
	q, err := t.access.Join(tx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ctx, cancel := core.Cleanup(ctx)
			defer cancel()
			_ = t.access.Rollback(ctx, tx)
		}
	}()
	rows = slices.Clone(rows) // fill changes them
	for i := range rows {
		if err := t.fill(ctx, &rows[i]); err != nil {
			return nil, err
		}
	}
	answers = make([]Answer[R], len(rows))
	first, order, err := t.distinct(rows)
	if err != nil {
		return nil, err
	}
	if err := t.access.Alive(ctx, q); err != nil {
		return nil, err
	}
	size := max(1, min(batchRows, batchParams/len(t.given)))
	for chunk := range slices.Chunk(order, size) {
		b := &batch[R, Tx]{t: t, q: q, rows: rows, answers: answers}
		if err := b.claim(ctx, chunk); err != nil {
			return nil, t.explainTx(err)
		}
	}
	for i := range rows {
		if f := first[i]; f != i { // a duplicate of an earlier row in the batch
			answers[i] = t.answer(rows[i], answers[f].Row)
		}
	}
	return answers, nil
}

// distinct finds, for each row, the first row with the same key. order lists those first rows in
// the order of their keys, so that two batches that share rows lock them in the same order.
func (t *Table[R, Tx]) distinct(rows []R) (first, order []int, err error) {
	first = make([]int, len(rows))
	seen := make(map[once.Hash]int, len(rows))
	keys := make([]once.Hash, len(rows))
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

func (t *Table[R, Tx]) answer(row, there R) Answer[R] {
	if err := t.same(row, there); err != nil {
		return Answer[R]{Row: there, Err: err}
	}
	return Answer[R]{Row: there, Outcome: idempotency.Replayed}
}

// batch claims the rows of one call.
type batch[R, Tx any] struct {
	t       *Table[R, Tx]
	q       core.Querier
	rows    []R
	answers []Answer[R]
}

// claim inserts all rows at once. If some rows exist, or one is refused, it reads those that exist with a
// lock and inserts the others again. If the insert still conflicts with rows of other transactions, or is
// refused, claim splits the rest into halves, down to single rows.
func (b *batch[R, Tx]) claim(ctx context.Context, of []int) error {
	all, err := b.insert(ctx, of)
	if err != nil || all {
		return err
	}
	rest, err := b.replay(ctx, of)
	if err != nil || len(rest) == 0 {
		return err
	}
	if len(of) == 1 {
		return b.single(ctx, of[0])
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
	var args []any
	for _, i := range of {
		args = append(args, t.values(b.rows[i], t.given)...)
	}
	all, err = t.insert.RunAll(ctx, b.q, len(of), args...)
	if err != nil || !all {
		return false, err
	}
	if err := b.unchanged(ctx, of); err != nil {
		return true, err
	}
	for _, i := range of {
		b.answers[i] = Answer[R]{Row: b.rows[i], Outcome: idempotency.Executed}
	}
	return true, nil
}

// unchanged does for many rows what the method of Table does for one.
func (b *batch[R, Tx]) unchanged(ctx context.Context, of []int) error {
	if !slices.ContainsFunc(of, func(i int) bool { return !b.t.surely(b.rows[i]) }) {
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
		if row, found := there[key]; !found || b.t.same(b.rows[i], row) != nil {
			if err := b.t.unchanged(ctx, b.q, &b.rows[i]); err != nil { // two hashes may be the same key in the database
				return err
			}
			continue
		}
		b.t.kept.saw(reflect.ValueOf(b.rows[i]), b.t.forms)
		if b.t.generated != nil {
			b.rows[i] = there[key]
		}
	}
	return nil
}

// replay sets the answers of existing rows, and returns the others.
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
			b.answers[i] = b.t.answer(b.rows[i], row)
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
	if err != nil {
		return err
	}
	if won {
		err := b.t.unchanged(ctx, b.q, &row)
		b.answers[i] = Answer[R]{Row: row, Outcome: idempotency.Executed}
		return err
	}
	there, err := b.t.find(ctx, b.q, b.t.lock, row)
	switch {
	case err != nil:
		return err
	case there == nil:
		return ErrUniqueViolation
	}
	b.answers[i] = b.t.answer(row, *there)
	return nil
}

// read reads the rows that have one of the keys, by their hashes.
func (b *batch[R, Tx]) read(ctx context.Context, of []int, lock string) (map[once.Hash]R, error) {
	t := b.t
	var args []any
	for _, i := range of {
		args = append(args, t.values(b.rows[i], t.key)...)
	}
	rows, err := t.readMany(len(of), lock).Query(ctx, b.q, args...)
	if err != nil {
		return nil, err
	}
	found, err := core.Collect(rows, func(row core.Row) (r R, err error) {
		err = row.Scan(t.fields.Dest(reflect.ValueOf(&r).Elem())...)
		return r, err
	})
	if err != nil {
		return nil, err
	}
	there := make(map[once.Hash]R, len(of))
	for _, row := range found {
		key, err := t.hash(row)
		if err != nil {
			return nil, err
		}
		there[key] = row
	}
	return there, nil
}

// readMany returns the read for n keys.
func (t *Table[R, Tx]) readMany(n int, lock string) core.Stmt {
	d := t.access.Dialect
	keys := make([]string, n)
	for i := range keys {
		keys[i] = dialect.Tuple(i*len(t.key)+1, len(t.key))
	}
	read := d.Compile("row.lock", `SELECT `+strings.Join(d.Idents(t.fields.Names()), ", ")+` FROM `+t.table.Quoted+
		` WHERE (`+strings.Join(d.Idents(t.spec.Key), ", ")+`) IN (`+d.Rows.Tuples+strings.Join(keys, ", ")+`)`+lock)
	read.Prepared = false // as RowClaim.RunAll
	return read
}

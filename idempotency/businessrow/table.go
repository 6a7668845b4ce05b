package businessrow

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/blockers"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// Table claims rows of a business table. The row is the lock and the record, and is never
// released. R is a struct whose fields have `db:"column"` tags.
type Table[R, Tx any] struct {
	db        *holdfast.DB[Tx]
	access    access.Access[Tx]
	spec      holdfast.TableSpec
	options   Options
	table     *rowmap.Table
	fields    rowmap.Fields // tagged fields, in order
	given     rowmap.Fields // those that the insert writes
	generated rowmap.Fields // the others: the database makes their values
	key       rowmap.Fields
	compare   rowmap.Fields
	forms     rowmap.Forms
	insert    dialect.RowClaim
	read      core.Stmt // plain read
	lock      core.Stmt // read within a transaction, with a lock
	flights   once.Flights[R]
	expectNew once.ExpectNew
	blockers  *blockers.Env
	kept      kept
	strict    atomic.Bool // see refusedFor
}

// New opens the table and checks once that the key of spec can be claimed: its columns, such as
// refund_no, or merchant and settlement_date, are NOT NULL and distinguish all values (no folding
// collation, no padding), and a unique index of exactly these columns covers every row.
//
// Errors: [holdfast.ErrInvalid] says which column is refused and what to declare.
func New[R, Tx any](ctx context.Context, db *holdfast.DB[Tx], spec holdfast.TableSpec, opts ...Options) (*Table[R, Tx], error) {
	if db == nil {
		return nil, once.Invalid("db", "is nil")
	}
	o, err := checkOptions(opts)
	if err != nil {
		return nil, err
	}
	t := &Table[R, Tx]{db: db, access: access.Of(db), spec: spec, options: o}
	t.blockers = blockers.New(t.access.Dialect, t.access.OnConn)
	d := t.access.Dialect
	t.options.LockTimeout = cmp.Or(o.LockTimeout, d.LockTimeout, core.DefaultLockTimeout)
	table, err := t.check(ctx)
	if err != nil {
		return nil, err
	}
	t.table = table
	columns := d.Idents(t.fields.Names())
	t.given, t.generated = t.fields.Given(spec.Key)
	t.insert = d.RowClaim(table.Quoted, d.Idents(t.given.Names()), d.Idents(spec.Key))
	read := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + table.Quoted + ` WHERE ` + table.Where(spec.Key, 1)
	t.read = d.Look("row.look", read)
	t.lock = d.Compile("row.lock", read+d.Rows.LockClause)
	return t, nil
}

// check maps the struct. It refuses a key whose columns can be NULL or fold different values, and
// a key without a full unique index.
func (t *Table[R, Tx]) check(ctx context.Context) (*rowmap.Table, error) {
	var err error
	if t.fields, err = rowmap.Of[R](t.access.Catalog); err != nil {
		return nil, err
	}
	if t.key, err = t.fields.Pick("TableSpec.Key", t.spec.Key); err != nil {
		return nil, err
	}
	if t.compare, err = t.fields.Pick("Options.Compare", t.options.Compare); err != nil {
		return nil, err
	}
	d := t.access.Dialect
	table, err := rowmap.Describe(ctx, t.access.Catalog, t.spec.Schema, t.spec.Table)
	if err != nil {
		return nil, err
	}
	key, err := table.Key(ctx, t.spec.Key)
	if err != nil {
		return nil, err
	}
	for i, c := range key {
		if kind := t.key[i].Field.Type.Kind(); (kind == reflect.String || kind == reflect.Slice) && slices.Contains(numbers, strings.ToLower(c.Type)) {
			return nil, once.Invalid("TableSpec.Key", fmt.Sprintf("column %q is a number and its field is text, so that \"07\" and \"7\" would be one key: give the field a number's type", c.Name))
		}
		if ok, why := d.Rows.Exact(c.Type, c.Collation); !ok {
			return nil, once.Invalid("TableSpec.Key", fmt.Sprintf("column %q: %s", c.Name, why))
		}
	}
	t.forms = table.Forms(key)
	t.kept, err = newKept(table, t.key, t.compare)
	return table, err
}

var numbers = []string{"integer", "int", "int2", "int4", "int8", "tinyint", "smallint", "mediumint", "bigint", "numeric", "decimal"}

// Do claims row in its own transaction, runs fn in it if the claim won, and commits. A duplicate
// gets the existing row, with Outcome Replayed. Duplicates in one process share a connection, as
// those of [idempotency.Do] do. fn follows the rules of the function of [idempotency.Do], with one
// difference: an error of Reject rolls back and is returned, but is not stored.
//
// Errors: [idempotency.ErrMismatch] with the columns that differ, [ErrUniqueViolation],
// [idempotency.ErrInProgress], [idempotency.ErrUnknown], [holdfast.ErrRetry],
// [holdfast.ErrTxLost], [holdfast.ErrRowsOpen], [holdfast.ErrReadOnly], [holdfast.ErrDenied],
// errors of ctx, errors of fn.
func (t *Table[R, Tx]) Do(ctx context.Context, row R, fn func(ctx context.Context, tx Tx) error) (res idempotency.Result[R], err error) {
	ctx, span := once.StartSpan(ctx, t.access.Trace, "business_row.do", t.spec.Table)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	if err := t.fill(ctx, &row); err != nil {
		return idempotency.Result[R]{}, err
	}
	key, err := t.hash(row)
	if err != nil {
		return idempotency.Result[R]{}, err
	}
	inner, err := once.Enter(ctx, t, key, true)
	if err != nil {
		return idempotency.Result[R]{}, err
	}
	wait := t.options.Wait
	policy := once.WaitPolicy{Wait: wait, Deadline: time.Now().Add(wait)}
	for {
		f, leads := t.flights.Join(key)
		if leads {
			res, span.Attempts, err = t.lead(inner, key, f, row, fn)
			return res, err
		}
		there, err := f.Follow(ctx, policy)
		if err != nil {
			return idempotency.Result[R]{}, inProgress(err)
		}
		if there != nil {
			return t.replay(row, *there)
		}
	}
}

// lead runs row for itself and for the duplicates that follow it.
func (t *Table[R, Tx]) lead(ctx context.Context, key once.Hash, f *once.Flight[R], row R, fn func(context.Context, Tx) error) (res idempotency.Result[R], tries int, err error) {
	var shared *R
	defer func() { t.flights.Finish(key, f, shared) }() // also when fn panics
	o := t.options
	watch := t.blockers.Watch(time.Now().Add(o.Wait))
	call := once.Retry[R]{
		ExpectNew: &t.expectNew, Wait: o.Wait, Limit: o.Attempts,
		Dialect: t.access.Dialect, Unstored: once.Unstored[*idempotency.Rejection],
		Read: func(ctx context.Context) (*R, error) { return t.look(ctx, row) },
		Try: func(ctx context.Context) (*R, error) {
			err := t.transact(ctx, &row, &watch, fn)
			if t.refusedFor(ctx, row, err) {
				err = once.ErrTaken
			}
			return &row, err
		},
	}
	stored, executed, err := call.Run(ctx)
	if err != nil {
		return idempotency.Result[R]{}, call.Tries, once.Settle(inProgress(err, watch.Found()...))
	}
	if executed { // the others read what fn has made of the row
		return idempotency.Result[R]{Value: row, Outcome: idempotency.Executed}, call.Tries, nil
	}
	shared = stored
	res, err = t.replay(row, *stored)
	return res, call.Tries, err
}

// look reads the row with the key of row, outside of a transaction.
func (t *Table[R, Tx]) look(ctx context.Context, row R) (there *R, err error) {
	err = t.access.OnConn(ctx, "", func(q core.Querier) error {
		there, err = t.find(ctx, q, t.read, row)
		return err
	})
	return there, err
}

// refusedFor reports whether a claim was refused although its row stands. A trigger, or a constraint that is
// newer than the row, refuses it before the key is looked at. And PostgreSQL and SQLite look at the key before
// other unique keys, but if the row was committed since, they find it in the index that is older. The table is
// strict from then on.
func (t *Table[R, Tx]) refusedFor(ctx context.Context, row R, err error) bool {
	var inFunc *once.FuncError
	var atClaim *once.ClaimError
	other := errors.Is(err, ErrUniqueViolation)
	refused := errors.As(err, &atClaim) && t.access.Dialect.Refuses(err)
	if errors.As(err, &inFunc) || !other && !refused {
		return false
	}
	there, lookErr := t.look(ctx, row)
	if lookErr != nil || there == nil {
		return false
	}
	t.strict.Store(true)
	return true
}

// transact runs one transaction: claim, function, commit.
func (t *Table[R, Tx]) transact(ctx context.Context, row *R, watch *blockers.Watch, fn func(context.Context, Tx) error) error {
	opts := core.TxOptions{Isolation: t.options.Isolation, LockTimeout: t.options.LockTimeout}
	insert := t.insert.Bind(t.values(*row, t.given)...)
	first := &insert
	if watch.Due(t.options.LockTimeout) { // then the insert follows a question
		first = nil
	}
	return t.access.Attempt(ctx, opts, first, func(ctx context.Context, tx Tx, q core.Querier, a core.Reply) error {
		if first != nil {
			watch.Ended(a.Err)
		} else if err := watch.During(ctx, q, t.options.LockTimeout, func() error {
			a = insert.Run(ctx, q)
			return a.Err
		}); a.Err == nil {
			a.Err = err
		}
		won, err := t.won(a)
		if err != nil {
			return err
		}
		if !won {
			// Read the row here, where the row that won is locked.
			there, err := t.find(ctx, q, t.lock, *row)
			if err == nil && there == nil {
				err = ErrUniqueViolation
			}
			return once.FirstOf(err, once.ErrTaken)
		}
		if err := t.unchanged(ctx, q, row); err != nil {
			return err
		}
		if err := fn(ctx, tx); err != nil {
			return &once.FuncError{Err: once.Inner(t.access.Explain(err))}
		}
		return nil
	})
}

func (t *Table[R, Tx]) replay(row, there R) (idempotency.Result[R], error) {
	if err := t.same(row, there); err != nil {
		return idempotency.Result[R]{}, err
	}
	return idempotency.Result[R]{Value: there, Outcome: idempotency.Replayed}, nil
}

// hash identifies the row's key within this process. Two rows that are equal to the database may
// have different hashes; two rows with the same hash are always equal.
func (t *Table[R, Tx]) hash(row R) (key once.Hash, err error) {
	var parts []string
	for i, v := range t.key.Values(reflect.ValueOf(row), t.forms) {
		d, err := driver.DefaultParameterConverter.ConvertValue(v)
		if err != nil || d == nil {
			return key, once.Invalid("row", fmt.Sprintf("the key's column %q has no value that a driver takes: %v", t.spec.Key[i], err))
		}
		if at, ok := d.(time.Time); ok {
			d = at.UnixNano()
		}
		parts = append(parts, fmt.Sprintf("%T", d), fmt.Sprintf("%v", d))
	}
	return once.HashKey(parts...), nil
}

// ClaimTx claims row in the caller's transaction. Executed means that the row was inserted and the
// caller must do the work. Replayed returns the existing row.
//
// After [idempotency.ErrMismatch] the transaction can continue. After every other error Holdfast
// has rolled tx back. [holdfast.ErrRetry] asks for a new transaction.
func (t *Table[R, Tx]) ClaimTx(ctx context.Context, tx Tx, row R) (res idempotency.Result[R], err error) {
	ctx, span := once.StartSpan(ctx, t.access.Trace, "business_row.claim_tx", t.spec.Table)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	q, err := t.access.Join(tx)
	if err != nil {
		return res, err
	}
	keep, strict := false, t.strict.Load()
	defer func() {
		if !keep {
			ctx, cancel := core.Cleanup(ctx)
			defer cancel()
			_ = t.access.Rollback(ctx, tx)
			if !strict && t.refusedFor(ctx, row, err) { // a new transaction finds it
				err = &holdfast.RetryError{Attempts: 1, Err: err}
			}
		}
	}()
	if err := t.fill(ctx, &row); err != nil {
		return res, err
	}
	if err := t.access.Alive(ctx, q); err != nil {
		return res, err
	}
	b := &batch[R, Tx]{t: t, q: q, rows: []R{row}, answers: make([]Answer[R], 1)}
	claim := b.single
	if strict { // behind a savepoint
		claim = func(ctx context.Context, _ int) error { return b.claim(ctx, []int{0}) }
	}
	if err := claim(ctx, 0); err != nil {
		return res, t.explainTx(err)
	}
	keep = true
	a := b.answers[0]
	if a.Err != nil {
		return res, a.Err
	}
	return idempotency.Result[R]{Value: a.Row, Outcome: a.Outcome}, nil
}

// explainTx returns a RetryError if the engine asks for a new transaction.
func (t *Table[R, Tx]) explainTx(err error) error {
	if t.db.Retryable(err) {
		return &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return err
}

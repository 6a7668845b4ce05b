package idempotency

import (
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx/reflectx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// TableSpec says which row of the caller's own table is the record.
type TableSpec struct {
	// Table and Schema name the table. Schema "" is the connection's own.
	Table, Schema string
	// Key are the columns of the unique key that is claimed, such as
	// refund_no, or merchant and settlement_date.
	Key []string
	// Compare are the columns which tell the same request from another one
	// with the same key. They are compared in Go, as they are stored: give
	// values that the columns keep unchanged (rounded, in their precision).
	Compare []string
	// Options bound the wait and the transaction; only Wait, Isolation,
	// LockTimeout and Attempts are used.
	Options Options
}

// Table claims rows of a business table: the row is the lock and the record,
// and is never released. R is a struct whose fields bear `db:"column"` tags.
type Table[R, Tx any] struct {
	db      *holdfast.DB[Tx]
	access  access.Access[Tx]
	spec    TableSpec
	table   *rowmap.Table
	fields  rowmap.Fields // tagged, in order
	key     rowmap.Fields
	compare rowmap.Fields
	forms   rowmap.Forms
	insert  core.Stmt
	read    core.Stmt // plain
	lock    core.Stmt // within a transaction
	flights flights[R]
	hunch   hunch
	keeps   bool // every value of the key, or refuses it
}

// NewTable checks once that the key can be claimed: its columns are NOT NULL
// and tell all values apart (no folding collation, no padding), and a unique
// index of exactly these columns covers every row.
//
// Errors: [holdfast.ErrInvalid] says which column is refused and what to declare.
func NewTable[R, Tx any](ctx context.Context, db *holdfast.DB[Tx], spec TableSpec) (*Table[R, Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	if err := spec.Options.withDefaults(); err != nil {
		return nil, err
	}
	t := &Table[R, Tx]{db: db, access: db.Access(), spec: spec}
	d := t.access.Dialect
	table, err := t.check(ctx)
	if err != nil {
		return nil, err
	}
	t.table = table
	columns := d.Idents(t.fields.Names())
	t.insert = d.Compile("row.claim", d.Rows.Insert(table.Quoted, columns, d.Idents(spec.Key)))
	read := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + table.Quoted + ` WHERE ` + table.Where(spec.Key, 1)
	t.read = d.Compile("row.look", read)
	t.lock = d.Compile("row.lock", read+d.Rows.LockClause)
	return t, nil
}

// check maps the struct and refuses a key whose columns can be NULL or fold
// different values, and one that no full unique index stands for.
func (t *Table[R, Tx]) check(ctx context.Context) (*rowmap.Table, error) {
	var err error
	if t.fields, err = rowmap.Of[R](t.db.CheckIdent); err != nil {
		return nil, err
	}
	if t.key, err = t.fields.Pick("TableSpec.Key", t.spec.Key); err != nil {
		return nil, err
	}
	if t.compare, err = t.fields.Pick("TableSpec.Compare", t.spec.Compare); err != nil {
		return nil, err
	}
	d := t.access.Dialect
	table, err := rowmap.Describe(ctx, d, t.access.Pool, t.db.CheckIdent, t.spec.Schema, t.spec.Table)
	if err != nil {
		return nil, err
	}
	key, err := table.Key(ctx, t.spec.Key)
	if err != nil {
		return nil, err
	}
	t.keeps = true
	for i, c := range key {
		t.keeps = t.keeps && slices.Contains(keepers, strings.ToLower(c.Type))
		if kind := t.key[i].Field.Type.Kind(); (kind == reflect.String || kind == reflect.Slice) && slices.Contains(numbers, strings.ToLower(c.Type)) {
			return nil, invalid("TableSpec.Key", fmt.Sprintf("column %q is a number and its field is text, so that \"07\" and \"7\" would be one key: give the field a number's type", c.Name))
		}
		if ok, why := d.Rows.Exact(c.Type, c.Collation); !ok {
			return nil, invalid("TableSpec.Key", fmt.Sprintf("column %q: %s", c.Name, why))
		}
	}
	t.forms = table.Forms(key)
	return table, nil
}

// keepers are the types of columns that keep every value they take; of the
// others some are cut or rounded, by the server's mode without an error.
var keepers = []string{"text", "bytea", "uuid", "blob", "integer", "int", "int2", "int4", "int8", "tinyint", "smallint", "mediumint", "bigint"}

var numbers = []string{"integer", "int", "int2", "int4", "int8", "tinyint", "smallint", "mediumint", "bigint", "numeric", "decimal"}

// Do claims row in a transaction of its own, runs fn in it where the claim won,
// and commits. A duplicate gets the row that is there, with Outcome Replayed.
// Duplicates in one process share a connection, as those of the package's
// function Do; what holds for its function holds for fn; an error of Reject
// rolls back and is returned, but nothing keeps it.
//
// Errors: [ErrMismatch] with the columns that differ, [ErrOtherKey],
// [ErrInProgress], [ErrUnknown], [holdfast.ErrRetry], [holdfast.ErrTxLost],
// ctx's, fn's own.
func (t *Table[R, Tx]) Do(ctx context.Context, row R, fn func(ctx context.Context, tx Tx) error) (res Result[R], err error) {
	ctx, span := tell(ctx, t.access.Trace, "business_row.do", t.spec.Table)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	key, err := t.hash(row)
	if err != nil {
		return Result[R]{}, err
	}
	inner, err := enter(ctx, t, key)
	if err != nil {
		return Result[R]{}, err
	}
	wait := t.spec.Options.Wait
	p := patience{wait: wait, deadline: time.Now().Add(wait)}
	for {
		f, leads := t.flights.join(key, nil)
		if leads {
			res, span.Attempts, err = t.lead(inner, key, f, row, fn)
			return res, err
		}
		there, err := f.follow(ctx, p)
		if err != nil {
			return Result[R]{}, err
		}
		if there != nil {
			return t.replay(row, *there)
		}
	}
}

// lead runs row for itself and for the duplicates that follow.
func (t *Table[R, Tx]) lead(ctx context.Context, key hash, f *flight[R], row R, fn func(context.Context, Tx) error) (res Result[R], attempts int, err error) {
	var landed *R
	defer func() { t.flights.land(key, f, landed) }() // also when fn panics
	var there R
	o := t.spec.Options
	course := course{
		hunch: &t.hunch, wait: o.Wait, attempts: o.Attempts,
		classify: t.access.Dialect.Classify, disconnected: t.access.Dialect.Disconnected,
		look: func(ctx context.Context) (found bool, err error) {
			err = t.access.OnConn(ctx, "", func(q core.Querier) (err error) {
				found, err = t.find(ctx, q, t.read, row, &there)
				return err
			})
			return found, err
		},
		try: func(ctx context.Context) error {
			opts := core.TxOptions{Isolation: o.Isolation, LockTimeout: o.LockTimeout}
			return t.access.Attempt(ctx, opts, func(ctx context.Context, tx Tx, q core.Querier) error {
				won, err := t.claim(ctx, q, row)
				if err != nil {
					return err
				}
				if !won {
					// Told apart here, where the row that won is locked.
					found, err := t.find(ctx, q, t.lock, row, &there)
					if err == nil && !found {
						err = ErrOtherKey
					}
					return firstOf(err, errLost)
				}
				if err := t.unchanged(ctx, q, row); err != nil {
					return err
				}
				if err := fn(ctx, tx); err != nil {
					return &funcError{err}
				}
				return nil
			})
		},
	}
	executed, err := course.settle(ctx)
	if err != nil {
		return Result[R]{}, course.tries, err
	}
	if executed {
		landed = &row
		return Result[R]{row, Executed}, course.tries, nil
	}
	landed = &there
	res, err = t.replay(row, there)
	return res, course.tries, err
}

func (t *Table[R, Tx]) replay(row, there R) (Result[R], error) {
	if err := t.same(row, there); err != nil {
		return Result[R]{}, err
	}
	return Result[R]{there, Replayed}, nil
}

// hash identifies the row's key within this process: rows that the database
// takes for one may have two hashes, and never the other way round.
func (t *Table[R, Tx]) hash(row R) (key hash, err error) {
	var parts []string
	for i, v := range t.key.Values(reflect.ValueOf(row), t.forms) {
		d, err := driver.DefaultParameterConverter.ConvertValue(v)
		if err != nil || d == nil {
			return key, invalid("row", fmt.Sprintf("the key's column %q has no value that a driver takes: %v", t.spec.Key[i], err))
		}
		if at, ok := d.(time.Time); ok {
			d = at.UnixNano()
		}
		parts = append(parts, fmt.Sprintf("%T", d), fmt.Sprintf("%v", d))
	}
	return hashKey(parts...), nil
}

// ClaimTx claims row in the caller's transaction: Executed means that it was
// inserted and the caller does the work; Replayed gives the row that was there.
//
// After [ErrMismatch] the transaction goes on. After every other error
// Holdfast has rolled tx back; [holdfast.ErrRetry] asks for a new one.
func (t *Table[R, Tx]) ClaimTx(ctx context.Context, tx Tx, row R) (res Result[R], err error) {
	ctx, span := tell(ctx, t.access.Trace, "business_row.claim_tx", t.spec.Table)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	q, err := t.access.Join(tx)
	if err != nil {
		return res, err
	}
	keep := false
	defer func() {
		if !keep {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
			defer cancel()
			_ = t.access.Rollback(ctx, tx)
		}
	}()
	if err := t.access.Alive(ctx, q); err != nil {
		return res, err
	}
	won, err := t.claim(ctx, q, row)
	if err == nil && won {
		err = t.unchanged(ctx, q, row)
	}
	if err != nil {
		if t.db.Retryable(err) {
			err = &holdfast.RetryError{Attempts: 1, Err: err}
		}
		return res, err
	}
	if won {
		keep = true
		return Result[R]{row, Executed}, nil
	}
	var there R
	found, err := t.find(ctx, q, t.lock, row, &there)
	switch {
	case err != nil:
		return res, err
	case !found:
		return res, ErrOtherKey
	}
	keep = true
	if err := t.same(row, there); err != nil {
		return res, err
	}
	return Result[R]{there, Replayed}, nil
}

func (t *Table[R, Tx]) claim(ctx context.Context, q core.Querier, row R) (bool, error) {
	r, err := t.insert.Exec(ctx, q, t.values(row, t.fields)...)
	switch {
	case err == nil:
		return t.access.Dialect.Rows.Verdict.Won(r), nil
	case t.access.Dialect.Classify(err) == dialect.Duplicate && t.access.Dialect.Rows.Verdict == dialect.ByDuplicate:
		return false, nil // on which key, the read that follows tells
	case t.access.Dialect.Classify(err) == dialect.Duplicate:
		return false, fmt.Errorf("%w: %w", ErrOtherKey, err)
	}
	return false, &claimError{err}
}

// unchanged refuses a key that its column did not keep as it was given: cut,
// rounded, or without its trailing blanks. It reads the row back where a column
// of that type may do so.
func (t *Table[R, Tx]) unchanged(ctx context.Context, q core.Querier, row R) error {
	if t.keeps {
		return nil
	}
	var there R
	found, err := t.find(ctx, q, t.read, row, &there)
	if err != nil {
		return err
	}
	if !found || len(differing(t.key, row, there)) > 0 {
		return invalid("row", fmt.Sprintf("a column of the key %v does not keep the value as it was given (too long, or too fine): give values that it keeps", t.spec.Key))
	}
	return nil
}

func (t *Table[R, Tx]) find(ctx context.Context, q core.Querier, stmt core.Stmt, row R, there *R) (bool, error) {
	v := reflect.ValueOf(there).Elem()
	v.SetZero()
	return stmt.QueryRow(ctx, q, t.fields.Dest(v), t.values(row, t.key)...)
}

func (t *Table[R, Tx]) values(row R, fields rowmap.Fields) []any {
	return fields.Values(reflect.ValueOf(row), t.forms)
}

// same compares the declared columns, and the key as it is stored.
func (t *Table[R, Tx]) same(row, there R) error {
	if columns := differing(append(slices.Clone(t.compare), t.key...), row, there); columns != nil {
		return &MismatchError{Columns: columns}
	}
	return nil
}

func differing[R any](fields rowmap.Fields, row, there R) (columns []string) {
	a, b := reflect.ValueOf(row), reflect.ValueOf(there)
	for _, f := range fields {
		if !equal(reflectx.FieldByIndexesReadOnly(a, f.Index), reflectx.FieldByIndexesReadOnly(b, f.Index)) {
			columns = append(columns, f.Name)
		}
	}
	return columns
}

// equal compares by the type's own Equal (time, decimal), through pointers and
// through driver.Valuer (sql.NullTime), else deeply.
func equal(x, y reflect.Value) bool {
	if x.Kind() == reflect.Pointer && (x.IsNil() || y.IsNil()) {
		return x.IsNil() && y.IsNil()
	}
	if m := x.MethodByName("Equal"); m.IsValid() && m.Type().NumIn() == 1 && m.Type().In(0) == y.Type() &&
		m.Type().NumOut() == 1 && m.Type().Out(0).Kind() == reflect.Bool {
		return m.Call([]reflect.Value{y})[0].Bool()
	}
	if x.Kind() == reflect.Pointer {
		return equal(x.Elem(), y.Elem())
	}
	v, isValuer := reflect.TypeAssert[driver.Valuer](x)
	w, too := reflect.TypeAssert[driver.Valuer](y)
	if isValuer && too {
		a, errA := v.Value()
		b, errB := w.Value()
		if at, ok := a.(time.Time); ok && errA == nil && errB == nil {
			bt, ok := b.(time.Time)
			return ok && at.Equal(bt)
		}
		return errA == nil && errB == nil && reflect.DeepEqual(a, b)
	}
	return reflect.DeepEqual(x.Interface(), y.Interface())
}

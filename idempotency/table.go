package idempotency

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx/reflectx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
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
	fields  []*reflectx.FieldInfo // tagged, in order
	key     []*reflectx.FieldInfo
	compare []*reflectx.FieldInfo
	text    map[string]bool // SQLite: key columns that hold text
	insert  core.Stmt
	read    core.Stmt // plain
	lock    core.Stmt // within a transaction
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
	if err := t.mapFields(); err != nil {
		return nil, err
	}
	if err := t.checkKey(ctx); err != nil {
		return nil, err
	}
	d := t.access.Dialect
	name := d.Ident(spec.Table)
	if spec.Schema != "" {
		name = d.Ident(spec.Schema) + "." + name
	}
	columns, key := d.Idents(names(t.fields)), d.Idents(spec.Key)
	t.insert = d.Compile("row.claim", d.Rows.Insert(name, columns, key))
	where := make([]string, len(key))
	for i, k := range key {
		where[i] = fmt.Sprintf("%s = $%d", k, i+1)
	}
	read := `SELECT ` + strings.Join(columns, ", ") + ` FROM ` + name + ` WHERE ` + strings.Join(where, " AND ")
	t.read = d.Compile("row.look", read)
	t.lock = d.Compile("row.lock", read+d.Rows.LockClause)
	return t, nil
}

func (t *Table[R, Tx]) mapFields() error {
	if err := t.db.CheckIdent("TableSpec.Table", t.spec.Table); err != nil {
		return err
	}
	if t.spec.Schema != "" {
		if err := t.db.CheckIdent("TableSpec.Schema", t.spec.Schema); err != nil {
			return err
		}
	}
	typ := reflect.TypeFor[R]()
	if typ.Kind() != reflect.Struct {
		return invalid("R", fmt.Sprintf("%v is not a struct with db tags", typ))
	}
	m := reflectx.NewMapper("db").TypeMap(typ)
	for _, f := range m.Index {
		if _, tagged := f.Field.Tag.Lookup("db"); tagged && f.Name != "" && !strings.Contains(f.Path, ".") {
			if err := t.db.CheckIdent("db tag", f.Name); err != nil {
				return err
			}
			t.fields = append(t.fields, f)
		}
	}
	if len(t.spec.Key) == 0 {
		return invalid("TableSpec.Key", "names no column")
	}
	var err error
	if t.key, err = t.pick("TableSpec.Key", t.spec.Key); err != nil {
		return err
	}
	t.compare, err = t.pick("TableSpec.Compare", t.spec.Compare)
	return err
}

func (t *Table[R, Tx]) pick(field string, columns []string) ([]*reflectx.FieldInfo, error) {
	out := make([]*reflectx.FieldInfo, len(columns))
	for i, c := range columns {
		n := slices.Index(names(t.fields), c)
		if n < 0 {
			return nil, invalid(field, fmt.Sprintf("%v has no field with the tag db:%q", reflect.TypeFor[R](), c))
		}
		out[i] = t.fields[n]
	}
	return out, nil
}

func names(fields []*reflectx.FieldInfo) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.Name
	}
	return out
}

// Do claims row in a transaction of its own, runs fn in it where the claim won,
// and commits. A duplicate gets the row that is there, with Outcome Replayed.
// What holds for the package's function Do holds for fn; an error of Reject
// rolls back and is returned, but nothing keeps it.
//
// Errors: [ErrMismatch] with the columns that differ, [ErrOtherKey],
// [ErrInProgress], [ErrUnknown], [holdfast.ErrRetry], [holdfast.ErrTxLost],
// ctx's, fn's own.
func (t *Table[R, Tx]) Do(ctx context.Context, row R, fn func(ctx context.Context, tx Tx) error) (Result[R], error) {
	var there R
	o := t.spec.Options
	course := course{
		wait: o.Wait, attempts: o.Attempts,
		classify: t.access.Dialect.Classify, disconnected: t.access.Dialect.Disconnected,
		look: func(ctx context.Context) (bool, error) { return t.find(ctx, t.access.Pool, t.read, row, &there) },
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
				return fn(ctx, tx)
			})
		},
	}
	executed, err := course.settle(ctx)
	if err != nil {
		return Result[R]{}, err
	}
	if executed {
		return Result[R]{row, Executed}, nil
	}
	if err := t.same(row, there); err != nil {
		return Result[R]{}, err
	}
	return Result[R]{there, Replayed}, nil
}

// ClaimTx claims row in the caller's transaction: Executed means that it was
// inserted and the caller does the work; Replayed gives the row that was there.
//
// After [ErrMismatch] the transaction goes on. After every other error
// Holdfast has rolled tx back; [holdfast.ErrRetry] asks for a new one.
func (t *Table[R, Tx]) ClaimTx(ctx context.Context, tx Tx, row R) (res Result[R], err error) {
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
	won, err := t.claim(ctx, q, row)
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
	won, err := runClaim(ctx, q, t.insert, t.access.Dialect.Rows.Verdict, t.values(row, t.fields))
	switch {
	case err == nil:
		return won, nil
	case t.access.Dialect.Classify(err) == dialect.Duplicate:
		return false, fmt.Errorf("%w: %w", ErrOtherKey, err)
	}
	return false, &claimError{err}
}

func (t *Table[R, Tx]) find(ctx context.Context, q core.Querier, stmt core.Stmt, row R, there *R) (bool, error) {
	v := reflect.ValueOf(there).Elem()
	v.SetZero()
	dest := make([]any, len(t.fields))
	for i, f := range t.fields {
		dest[i] = reflectx.FieldByIndexes(v, f.Index).Addr().Interface()
	}
	return stmt.QueryRow(ctx, q, dest, t.values(row, t.key)...)
}

func (t *Table[R, Tx]) values(row R, fields []*reflectx.FieldInfo) []any {
	v := reflect.ValueOf(row)
	out := make([]any, len(fields))
	for i, f := range fields {
		out[i] = reflectx.FieldByIndexesReadOnly(v, f.Index).Interface()
		// SQLite takes the same bytes as text and as a blob for two keys.
		if text, isKey := t.text[f.Name]; isKey {
			out[i] = asColumn(out[i], text)
		}
	}
	return out
}

// same compares the declared columns by the type's own Equal (time, decimal)
// where there is one.
func (t *Table[R, Tx]) same(row, there R) error {
	a, b := reflect.ValueOf(row), reflect.ValueOf(there)
	var differ []string
	for _, f := range t.compare {
		x, y := reflectx.FieldByIndexesReadOnly(a, f.Index), reflectx.FieldByIndexesReadOnly(b, f.Index)
		if !equal(x, y) {
			differ = append(differ, f.Name)
		}
	}
	if differ != nil {
		return &MismatchError{Columns: differ}
	}
	return nil
}

func equal(x, y reflect.Value) bool {
	if m := x.MethodByName("Equal"); m.IsValid() && m.Type().NumIn() == 1 && m.Type().In(0) == y.Type() &&
		m.Type().NumOut() == 1 && m.Type().Out(0).Kind() == reflect.Bool {
		return m.Call([]reflect.Value{y})[0].Bool()
	}
	return reflect.DeepEqual(x.Interface(), y.Interface())
}

// asColumn gives a key its column's form.
func asColumn(v any, text bool) any {
	r := reflect.ValueOf(v)
	switch {
	case text && r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8:
		return string(r.Bytes())
	case !text && r.Kind() == reflect.String:
		return []byte(r.String())
	}
	return v
}

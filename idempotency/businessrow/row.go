package businessrow

import (
	"context"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
)

func (t *Table[R, Tx]) claim(ctx context.Context, q core.Querier, row R) (bool, error) {
	return t.won(t.insert.Bind(t.values(row, t.given)...).Run(ctx, q))
}

// won says whether the insert with this answer has claimed its row.
func (t *Table[R, Tx]) won(a core.Reply) (bool, error) {
	won, err := t.insert.Won(a)
	switch {
	case err == nil:
		return won, nil
	case t.access.Dialect.Classify(err) == dialect.Duplicate:
		return false, fmt.Errorf("%w: %w", ErrUniqueViolation, err)
	}
	return false, &once.ClaimError{Err: err}
}

// fill sets the fields of row that fill themselves, and refuses a value for a column that is not written.
func (t *Table[R, Tx]) fill(ctx context.Context, row *R) error {
	v := reflect.ValueOf(row).Elem()
	for _, f := range t.generated {
		if !f.Of(v).IsZero() {
			return once.Invalid("row", fmt.Sprintf("the database makes the value of column %q: leave its field zero", f.Name))
		}
	}
	return t.given.Fill(ctx, v, false)
}

// unchanged refuses a key, or a compared value, that its column did not store as given: cut, rounded,
// or without its trailing blanks. It reads the row back if a column of that type may do so, and if the
// database made values of it.
func (t *Table[R, Tx]) unchanged(ctx context.Context, q core.Querier, given *R) error {
	row := *given
	if t.surely(row) {
		return nil
	}
	there, err := t.find(ctx, q, t.read, row)
	if err != nil {
		return err
	}
	if there == nil || len(differing(t.key, row, *there)) > 0 {
		return once.Invalid("row", fmt.Sprintf("a column of the key %v does not keep the value as it was given (too long, too fine, or 0 where the database makes a number for it): give values that it keeps", t.spec.Key))
	}
	if columns := differing(t.compare, row, *there); columns != nil {
		return once.Invalid("row", fmt.Sprintf("the compared columns %v do not keep the value as it was given (too long, too fine, or in another form), so the same request again would be a mismatch: give values as the columns keep them, for instance rounded", columns))
	}
	t.kept.saw(reflect.ValueOf(row), t.forms)
	if t.generated != nil {
		*given = *there
	}
	return nil
}

// surely reports whether the columns store row, in its key and the compared columns, as given.
func (t *Table[R, Tx]) surely(row R) bool {
	return t.generated == nil && t.kept.surely(reflect.ValueOf(row), t.forms)
}

// find reads the row with the key of row; nil if there is none.
func (t *Table[R, Tx]) find(ctx context.Context, q core.Querier, stmt core.Stmt, row R) (*R, error) {
	there := new(R)
	found, err := stmt.QueryRow(ctx, q, t.fields.Dest(reflect.ValueOf(there).Elem()), t.values(row, t.key)...)
	if err != nil || !found {
		return nil, err
	}
	return there, nil
}

func (t *Table[R, Tx]) values(row R, fields rowmap.Fields) []any {
	return fields.Values(reflect.ValueOf(row), t.forms)
}

// same compares the declared columns, and the key as stored.
func (t *Table[R, Tx]) same(row, there R) error {
	if columns := differing(append(slices.Clone(t.compare), t.key...), row, there); columns != nil {
		return &idempotency.MismatchError{Columns: columns}
	}
	return nil
}

func differing[R any](fields rowmap.Fields, row, there R) (columns []string) {
	a, b := reflect.ValueOf(row), reflect.ValueOf(there)
	for _, f := range fields {
		if !equal(f.Of(a), f.Of(b)) {
			columns = append(columns, f.Name)
		}
	}
	return columns
}

// equal compares by the type's own Equal (time, decimal), through pointers and through
// driver.Valuer (sql.NullTime), and otherwise deeply.
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

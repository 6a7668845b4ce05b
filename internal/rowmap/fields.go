// Package rowmap maps a struct with db tags onto a table of the caller's own,
// and checks what the engine's catalog says of that table. What it refuses is a
// holdfast.InputError.
package rowmap

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx/reflectx"

	"github.com/holdfast-go/holdfast"
)

// Fields are fields of a struct and the columns that they stand for, in order.
type Fields []*reflectx.FieldInfo

// Of lists the fields of R that bear a db tag; check judges the names.
func Of[R any](check func(argument, name string) error) (Fields, error) {
	typ := reflect.TypeFor[R]()
	if typ.Kind() != reflect.Struct {
		return nil, invalid("R", fmt.Sprintf("%v is not a struct with db tags", typ))
	}
	var fields Fields
	for _, f := range reflectx.NewMapper("db").TypeMap(typ).Index {
		if _, tagged := f.Field.Tag.Lookup("db"); tagged && f.Name != "" && !strings.Contains(f.Path, ".") {
			if err := check("db tag", f.Name); err != nil {
				return nil, err
			}
			fields = append(fields, f)
		}
	}
	return fields, nil
}

// Pick lists the fields of columns; argument names what asked for them.
func (f Fields) Pick(argument string, columns []string) (Fields, error) {
	out := make(Fields, len(columns))
	for i, c := range columns {
		n := slices.Index(f.Names(), c)
		if n < 0 {
			return nil, invalid(argument, fmt.Sprintf("the row's struct has no field with the tag db:%q", c))
		}
		out[i] = f[n]
	}
	return out, nil
}

// Names are the columns.
func (f Fields) Names() []string {
	out := make([]string, len(f))
	for i, field := range f {
		out[i] = field.Name
	}
	return out
}

// Dest are pointers to the fields of row, which is addressable, to scan into.
func (f Fields) Dest(row reflect.Value) []any {
	out := make([]any, len(f))
	for i, field := range f {
		out[i] = reflectx.FieldByIndexes(row, field.Index).Addr().Interface()
	}
	return out
}

// Values are the values of row's fields, each in its column's form.
func (f Fields) Values(row reflect.Value, forms Forms) []any {
	out := make([]any, len(f))
	for i, field := range f {
		out[i] = forms.Of(field.Name, reflectx.FieldByIndexesReadOnly(row, field.Index).Interface())
	}
	return out
}

func invalid(argument, problem string) error {
	return &holdfast.InputError{Field: argument, Problem: problem}
}

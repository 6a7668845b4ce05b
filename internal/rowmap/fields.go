// Package rowmap maps a struct with db tags to one of the caller's own tables, and checks that
// table against the engine's catalog. It also generates the SQL that all users of such tables
// share: conditions and keyset paging. Its errors for invalid arguments are core.InputErrors.
package rowmap

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx/reflectx"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Fields are fields of a struct with their columns, in order.
type Fields []*reflectx.FieldInfo

// Of returns the fields of R that have a db tag. check returns an error for an invalid name.
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

// Pick returns the fields of columns. argument names the argument that lists them.
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

// Names returns the columns.
func (f Fields) Names() []string {
	out := make([]string, len(f))
	for i, field := range f {
		out[i] = field.Name
	}
	return out
}

// Dest returns pointers to the fields of row, to scan into. row must be addressable.
func (f Fields) Dest(row reflect.Value) []any {
	out := make([]any, len(f))
	for i, field := range f {
		out[i] = reflectx.FieldByIndexes(row, field.Index).Addr().Interface()
	}
	return out
}

// Values returns the values of row's fields, each in the form that its column accepts.
func (f Fields) Values(row reflect.Value, forms Forms) []any {
	out := make([]any, len(f))
	for i, field := range f {
		out[i] = forms.Of(field.Name, reflectx.FieldByIndexesReadOnly(row, field.Index).Interface())
	}
	return out
}

func invalid(argument, problem string) error {
	return &core.InputError{Field: argument, Problem: problem}
}

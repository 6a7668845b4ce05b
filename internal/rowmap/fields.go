// Package rowmap maps a struct with db tags to one of the caller's own tables, and checks that
// table against the engine's catalog. It also generates the SQL that all users of such tables
// share: conditions and keyset paging. Its errors for invalid arguments are of the type errcode.InputError.
package rowmap

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx/reflectx"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

// Fields are fields of a struct with their columns, in order.
type Fields []Field

// Field is a field of a struct, with what holdfast.Field says of it.
type Field struct {
	*reflectx.FieldInfo

	Generated bool
	Fill      func(ctx context.Context, row reflect.Value, update bool) error
}

// Of returns the field of row, or its zero value if it is in a struct that row embeds by a pointer which is nil.
func (f Field) Of(row reflect.Value) reflect.Value {
	v, err := row.FieldByIndexErr(f.Index)
	if err != nil {
		return reflect.Zero(f.Field.Type)
	}
	return v
}

// Of returns the fields of R that are columns: those that the program's own mapping names, or those
// with a db tag. A field hides those of its column that are embedded deeper, as it hides those of its name in Go.
func Of[R any](c access.Catalog) (Fields, error) {
	typ := reflect.TypeFor[R]()
	if typ.Kind() != reflect.Struct {
		return nil, invalid("R", fmt.Sprintf("%v is not a struct with db tags", typ))
	}
	own, err := c.Fields(typ)
	if err != nil {
		return nil, err
	}
	var fields Fields
	for _, f := range own {
		if err := c.Check("column", f.Column); err != nil {
			return nil, err
		}
		if slices.Contains(fields.Names(), f.Column) {
			return nil, twice(typ, f.Column)
		}
		if err := settable(typ, f.Index); err != nil {
			return nil, err
		}
		info := &reflectx.FieldInfo{Name: f.Column, Index: f.Index, Field: typ.FieldByIndex(f.Index)}
		fields = append(fields, Field{FieldInfo: info, Generated: f.Generated, Fill: f.Fill})
	}
	if len(own) > 0 {
		return fields, nil
	}
	for _, f := range reflectx.NewMapper("db").TypeMap(typ).Index {
		if _, tagged := f.Field.Tag.Lookup("db"); tagged && f.Name != "" && !strings.Contains(f.Path, ".") {
			if err := c.Check("db tag", f.Name); err != nil {
				return nil, err
			}
			if err := settable(typ, f.Index); err != nil {
				return nil, err
			}
			n := slices.Index(fields.Names(), f.Name)
			if n < 0 {
				fields = append(fields, Field{FieldInfo: f})
			} else if len(fields[n].Index) == len(f.Index) {
				return nil, twice(typ, f.Name)
			}
		}
	}
	return fields, nil
}

// settable refuses a field in a struct that row embeds by a pointer of an unexported type: no other package
// can set the pointer.
func settable(row reflect.Type, index []int) error {
	for typ := row; len(index) > 1; index = index[1:] {
		f := typ.Field(index[0])
		if typ = f.Type; typ.Kind() != reflect.Pointer {
			continue
		}
		if typ = typ.Elem(); !f.IsExported() {
			return invalid("R", fmt.Sprintf("%v embeds a pointer to %v, which is not exported and cannot be set: export it, or embed it by value", row, typ))
		}
	}
	return nil
}

func twice(row reflect.Type, column string) error {
	return invalid("R", fmt.Sprintf("two fields of %v are the column %q: leave one", row, column))
}

// Pick returns the fields of columns. argument names the argument that lists them.
func (f Fields) Pick(argument string, columns []string) (Fields, error) {
	out := make(Fields, len(columns))
	for i, c := range columns {
		n := slices.Index(f.Names(), c)
		if n < 0 {
			return nil, invalid(argument, fmt.Sprintf("the row's struct has no field for column %q: tag it db:%q", c, c))
		}
		out[i] = f[n]
	}
	return out, nil
}

// Given returns the fields that an INSERT writes: all but those that the database generates outside of key.
func (f Fields) Given(key []string) (given, generated Fields) {
	for _, field := range f {
		if field.Generated && !slices.Contains(key, field.Name) {
			generated = append(generated, field)
		} else {
			given = append(given, field)
		}
	}
	return given, generated
}

// Fill sets the fields of row that fill themselves before a write.
func (f Fields) Fill(ctx context.Context, row reflect.Value, update bool) error {
	for _, field := range f {
		if field.Fill == nil {
			continue
		}
		if err := field.Fill(ctx, row, update); err != nil {
			return fmt.Errorf("holdfast: filling column %q: %w", field.Name, err)
		}
	}
	return nil
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
		out[i] = forms.Of(field.Name, field.Of(row).Interface())
	}
	return out
}

func invalid(argument, problem string) error {
	return errcode.Invalid(argument, problem)
}

package rowmap

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/access"
)

// Spec is holdfast.TableSpec.
type Spec struct {
	Table, Schema string
	Key           []string
}

// Mapping maps a struct type to a table.
type Mapping struct {
	*Table

	Fields    Fields // all fields with a tag, in order
	KeyFields Fields
	// KeyColumns are the columns of the key.
	KeyColumns []Column
}

// Map maps R to the table of spec. It returns an error if a field has no column, the key is
// not unique, or a key field is of another kind than its column.
func Map[R any](ctx context.Context, c access.Catalog, spec Spec) (*Mapping, error) {
	fields, err := Of[R](c)
	if err != nil {
		return nil, err
	}
	m := &Mapping{Fields: fields}
	if m.KeyFields, err = fields.Pick("TableSpec.Key", spec.Key); err != nil {
		return nil, err
	}
	if m.Table, err = Describe(ctx, c, spec.Schema, spec.Table); err != nil {
		return nil, err
	}
	for _, f := range fields {
		if _, err := m.Column("db tag", f.Name); err != nil {
			return nil, err
		}
	}
	if m.KeyColumns, err = m.Key(ctx, spec.Key); err != nil {
		return nil, err
	}
	for i, column := range m.KeyColumns {
		if err := CheckKind("TableSpec.Key", column, m.KeyFields[i].Field.Type); err != nil {
			return nil, err
		}
	}
	return m, nil
}

package rowmap

import (
	"reflect"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// Forms records for each column whether it holds text. SQLite treats the same bytes as text
// and as a blob as two different values. Forms is empty on other engines.
type Forms map[string]bool

// Forms returns the Forms of columns.
func (t *Table) Forms(columns []Column) Forms {
	forms := Forms{}
	for _, c := range columns {
		switch t.dialect.Rows.Form(c.Type) {
		case dialect.FormText:
			forms[c.Name] = true
		case dialect.FormBytes:
			forms[c.Name] = false
		}
	}
	return forms
}

// Of returns v in the form that the column accepts.
func (f Forms) Of(column string, v any) any {
	text, given := f[column]
	if !given {
		return v
	}
	r := reflect.ValueOf(v)
	switch {
	case text && r.Kind() == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8:
		return string(r.Bytes())
	case !text && r.Kind() == reflect.String:
		return []byte(r.String())
	}
	return v
}

package sqllock

import (
	"cmp"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/rowmap"
)

// place is a row's key and where it was given.
type place struct {
	at     int
	values []any // as they are sent
	sorted []any // as they are compared
}

// order sorts the keys of rows: every call locks in one order.
func (t *Table[R, Tx]) order(rows []R) ([]place, error) {
	out := make([]place, len(rows))
	for i := range rows {
		values := t.key.Values(reflect.ValueOf(&rows[i]).Elem(), t.forms)
		sorted := make([]any, len(values))
		for j, v := range values {
			sorted[j] = plain(v)
		}
		out[i] = place{i, values, sorted}
	}
	slices.SortFunc(out, func(a, b place) int { return slices.CompareFunc(a.sorted, b.sorted, compare) })
	for i := range out {
		if i > 0 && slices.CompareFunc(out[i-1].sorted, out[i].sorted, compare) == 0 {
			return nil, invalid("rows", "a key is given twice: name each row once")
		}
	}
	return out, nil
}

// plain is v as an int64, uint64, float64, string, time.Time, nil or, where it
// is none of these, its text.
func plain(v any) any {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer && r.IsNil() {
		return nil
	}
	if valuer, ok := v.(driver.Valuer); ok {
		if value, err := valuer.Value(); err == nil {
			v, r = value, reflect.ValueOf(value)
		}
	}
	switch v := v.(type) {
	case nil, time.Time:
		return v
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	}
	switch k := r.Kind(); {
	case k == reflect.Pointer:
		return plain(r.Elem().Interface())
	case r.CanInt():
		return r.Int()
	case r.CanUint():
		return r.Uint()
	case r.CanFloat():
		return r.Float()
	case k == reflect.String:
		return r.String()
	case k == reflect.Slice && r.Type().Elem().Kind() == reflect.Uint8:
		return string(r.Bytes())
	case k == reflect.Array && r.Type().Elem().Kind() == reflect.Uint8:
		b := make([]byte, r.Len())
		reflect.Copy(reflect.ValueOf(b), r)
		return string(b)
	}
	return fmt.Sprint(v)
}

func compare(a, b any) int {
	switch a := a.(type) {
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case uint64:
		if b, ok := b.(uint64); ok {
			return cmp.Compare(a, b)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b)
		}
	case time.Time:
		if b, ok := b.(time.Time); ok {
			return a.Compare(b)
		}
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// checkKind refuses a number for a text column and the other way
// round: MySQL and MariaDB compare them by converting, and 0 equals every text
// that does not begin with a digit.
func checkKind(argument string, c rowmap.Column, typ reflect.Type) error {
	column, field := "", ""
	switch t := strings.ToLower(c.Type); {
	case strings.Contains(t, "int"):
		column = "number"
	case slices.ContainsFunc([]string{"char", "text", "binary", "blob", "bytea"}, func(s string) bool { return strings.Contains(t, s) }):
		column = "text"
	}
	switch plain(reflect.Zero(typ).Interface()).(type) {
	case int64, uint64, float64:
		field = "number"
	case string:
		field = "text"
	}
	if column == "number" && field == "text" || column == "text" && field == "number" {
		return invalid(argument, fmt.Sprintf("column %q holds a %s, and a Go %v is a %s", c.Name, column, typ, field))
	}
	return nil
}

package rowmap

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// CheckKind refuses a Go number for a text column, and a Go text for a number column. MySQL
// and MariaDB convert such values for the comparison, and 0 equals every text that does not
// begin with a digit.
func CheckKind(argument string, c Column, typ reflect.Type) error {
	column, field := columnKind(c), ""
	switch Plain(reflect.Zero(typ).Interface()).(type) {
	case int64, uint64, float64:
		field = "number"
	case string:
		field = "text"
	}
	if column != "" && field != "" && column != field {
		return invalid(argument, fmt.Sprintf("column %q holds a %s, and a Go %v is a %s: use a field of the column's kind", c.Name, column, typ, field))
	}
	return nil
}

func columnKind(c Column) string {
	typ := strings.ToLower(c.Type)
	switch {
	case strings.Contains(typ, "int"):
		return "number"
	case slices.ContainsFunc([]string{"char", "text", "binary", "blob", "bytea"}, func(s string) bool { return strings.Contains(typ, s) }):
		return "text"
	}
	return ""
}

// Plain converts v to an int64, uint64, float64, string, time.Time or nil, so that values of
// different Go types can be compared. Any other value becomes its text.
func Plain(v any) any {
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
		return Plain(r.Elem().Interface())
	case r.CanInt():
		return r.Int()
	case r.CanUint():
		return r.Uint()
	case r.CanFloat():
		return r.Float()
	case k == reflect.String:
		return r.String()
	}
	if text, ok := bytesOf(r); ok {
		return text
	}
	return fmt.Sprint(v)
}

// bytesOf returns a slice or array of bytes as a string.
func bytesOf(r reflect.Value) (string, bool) {
	k := r.Kind()
	switch {
	case k != reflect.Slice && k != reflect.Array, r.Type().Elem().Kind() != reflect.Uint8:
		return "", false
	case k == reflect.Slice:
		return string(r.Bytes()), true
	}
	b := make([]byte, r.Len())
	reflect.Copy(reflect.ValueOf(b), r)
	return string(b), true
}

package once

import (
	"encoding/json"
	"reflect"
)

// The stored forms of a result. Slices of bytes are stored unchanged.
const (
	FormJSON  = "json"
	FormBytes = "bytes"
)

var marshaler = reflect.TypeFor[json.Marshaler]()

// FormOf returns the stored form of values of type t.
func FormOf(t reflect.Type) string {
	if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !t.Implements(marshaler) {
		return FormBytes
	}
	return FormJSON
}

package once

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"sync"
)

// jsonType is what is known of the JSON of a type.
type jsonType struct {
	silent string // see Silent; without the parts that interfaces hold
	open   bool   // it may hold interfaces
}

var jsonTypes sync.Map // by reflect.Type

func jsonTypeOf(t reflect.Type) jsonType {
	if known, ok := jsonTypes.Load(t); ok {
		return known.(jsonType) //nolint:forcetypeassert // nothing else is stored
	}
	found := jsonType{silent: silentType(t, false, "", map[visit]bool{}), open: isOpen(t, map[reflect.Type]bool{})}
	jsonTypes.Store(t, found)
	return found
}

// isOpen reports whether values of t may hold interfaces.
func isOpen(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return isOpen(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if isOpen(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// errText means that JSON cannot hold a text.
var errText = errors.New("it has text that is not UTF-8, which JSON does not keep: store it as []byte, or convert it")

// Marshal returns v as JSON. It fails for text that is not UTF-8, in place of which JSON has U+FFFD.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	// encoding/json writes this escape for invalid text only. It may also stand in what a
	// json.Marshaler or a json.RawMessage gave, or follow a backslash; then it comes back.
	if err != nil || !bytes.Contains(text, []byte(`\ufffd`)) {
		return text, err
	}
	back := reflect.New(reflect.TypeOf(v))
	if err := Unmarshal(text, back.Interface()); err != nil {
		return nil, err
	}
	if again, err := json.Marshal(back.Elem().Interface()); err != nil || !bytes.Equal(again, text) {
		return nil, FirstOf(err, errText)
	}
	return text, nil
}

// Unmarshal reads JSON into the value that to points to. A number that an interface holds becomes a
// json.Number, which keeps every digit.
func Unmarshal(text []byte, to any) error {
	if !jsonTypeOf(reflect.TypeOf(to)).open {
		return json.Unmarshal(text, to)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one value")
	}
	return nil
}

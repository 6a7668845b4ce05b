package staged

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// maxShape bounds the stored form of a type, in bytes. For a longer one only its outermost kind is
// stored.
const maxShape = 4096

// shape describes the JSON values that a type can be decoded from. It is stored with each
// operation and step, so that a result can be checked without the Go type.
type shape struct {
	// Kind is the name of a scalar in Go, or one of the constants below.
	Kind   string            `json:"kind"`
	Null   bool              `json:"null,omitempty"`   // null is also a value of the type
	Elem   *shape            `json:"elem,omitempty"`   // of a list or a map; nil means any value
	Fields map[string]*shape `json:"fields,omitempty"` // of an object; nil means any object
}

const (
	kindAny    = "any"   // the type decodes its own JSON
	kindBytes  = "bytes" // stored unchanged, not as JSON
	kindText   = "text"  // a string that the type decodes itself
	kindBase64 = "base64"
	kindTime   = "time" // RFC 3339
	kindList   = "list"
	kindMap    = "map"
	kindObject = "object"
)

// scalars are the types with which encoding/json decodes scalars, by their kind.
var scalars = scalarTypes()

func scalarTypes() map[string]reflect.Type {
	types := map[string]reflect.Type{kindText: reflect.TypeFor[string](), kindBase64: reflect.TypeFor[[]byte](), kindTime: reflect.TypeFor[time.Time]()}
	for _, v := range []any{
		false, "", 0, int8(0), int16(0), int32(0), int64(0), uint(0), uint8(0), uint16(0), uint32(0), uint64(0), uintptr(0), float32(0), float64(0),
	} {
		types[reflect.TypeOf(v).Kind().String()] = reflect.TypeOf(v)
	}
	return types
}

// resultType returns the stored shape of T.
func resultType[T any]() string { return storedShape(reflect.TypeFor[T]()) }

func storedShape(t reflect.Type) string {
	if once.FormOf(t) == once.FormBytes {
		return `{"kind":"` + kindBytes + `"}`
	}
	s := shapeOf(t, nil)
	text, err := json.Marshal(s)
	if len(text) > maxShape {
		text, err = json.Marshal(shape{Kind: s.Kind, Null: s.Null})
	}
	if err != nil {
		return "" // readShape treats an empty shape as any
	}
	return string(text)
}

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// shapeOf describes t. around lists the types that contain t.
func shapeOf(t reflect.Type, around []reflect.Type) *shape {
	pointer := reflect.PointerTo(t)
	switch kind := t.Kind(); {
	case t == scalars[kindTime]:
		return &shape{Kind: kindTime}
	case slices.Contains(around, t), pointer.Implements(unmarshaler), t == reflect.TypeFor[json.Number]():
		return &shape{Kind: kindAny}
	case pointer.Implements(textUnmarshaler):
		return &shape{Kind: kindText}
	case kind == reflect.Pointer:
		s := shapeOf(t.Elem(), append(around, t))
		s.Null = true
		return s
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return &shape{Kind: kindBase64, Null: true}
	case kind == reflect.Slice, kind == reflect.Array:
		return &shape{Kind: kindList, Null: kind == reflect.Slice, Elem: shapeOf(t.Elem(), append(around, t))}
	case kind == reflect.Map:
		return &shape{Kind: kindMap, Null: true, Elem: shapeOf(t.Elem(), append(around, t))}
	case kind == reflect.Struct:
		s := &shape{Kind: kindObject, Fields: map[string]*shape{}}
		s.add(t, append(around, t))
		return s
	case scalars[kind.String()] != nil:
		return &shape{Kind: kind.String()}
	}
	return &shape{Kind: kindAny}
}

// add adds the fields of a struct as encoding/json sees them: an outer field hides a field of an
// embedded struct.
func (s *shape) add(t reflect.Type, around []reflect.Type) {
	var embedded []reflect.Type
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Tag.Get("json") == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			embedded = append(embedded, inner)
		case f.IsExported():
			s.put(cmp.Or(name, f.Name), fieldShape(f.Type, options, around))
		}
	}
	for _, inner := range embedded {
		if !slices.Contains(around, inner) {
			s.add(inner, append(around, inner))
		}
	}
}

func fieldShape(t reflect.Type, options string, around []reflect.Type) *shape {
	if slices.Contains(strings.Split(options, ","), "string") { // a number in quotes
		return &shape{Kind: kindAny}
	}
	return shapeOf(t, around)
}

func (s *shape) put(name string, field *shape) {
	if s.Fields[name] == nil {
		s.Fields[name] = field
	}
}

// String formats the shape for people: {"cents": int64, "lines": [string] or null}.
func (s *shape) String() string {
	text := s.Kind
	switch {
	case s.Kind == kindList && s.Elem != nil:
		text = "[" + s.Elem.String() + "]"
	case s.Kind == kindMap && s.Elem != nil:
		text = "{*: " + s.Elem.String() + "}"
	case s.Kind == kindObject && s.Fields != nil:
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(s.Fields)) {
			fields = append(fields, fmt.Sprintf("%q: %v", name, s.Fields[name]))
		}
		text = "{" + strings.Join(fields, ", ") + "}"
	}
	if s.Null {
		text += " or null"
	}
	return text
}

var errShape = errors.New("another shape")

// check refuses JSON that the type cannot decode, or can decode only in part.
func (s *shape) check(raw json.RawMessage) error {
	switch scalar := scalars[s.Kind]; {
	case s.Kind == kindAny:
		return nil
	case string(raw) == "null":
		return errorIf(!s.Null)
	case scalar != nil:
		return errorIf(json.Unmarshal(raw, reflect.New(scalar).Interface()) != nil)
	case s.Kind == kindList:
		var list []json.RawMessage
		err := json.Unmarshal(raw, &list)
		for _, v := range list {
			err = once.FirstOf(err, s.Elem.elem(v))
		}
		return err
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(raw, &object)
	for name, v := range object {
		field := s.Fields[name]
		if s.Kind == kindMap {
			field = s.Elem
		}
		err = once.FirstOf(err, errorIf(field == nil && s.Fields != nil))
		err = once.FirstOf(err, field.elem(v))
	}
	return err
}

// elem checks a part whose shape may be unknown.
func (s *shape) elem(raw json.RawMessage) error {
	if s == nil {
		return nil
	}
	return s.check(raw)
}

func errorIf(wrong bool) error {
	if wrong {
		return errShape
	}
	return nil
}

// readShape reads a stored type. If it cannot be read, any value is accepted.
func readShape(stored string) *shape {
	var s shape
	if json.Unmarshal([]byte(stored), &s) != nil {
		s = shape{Kind: kindAny}
	}
	return &s
}

// conform converts v to the form in which a result of a stored type is stored, or returns an error
// that describes the type. JSON may stand for bytes: as a string in base64.
func conform(stored string, v any) (any, error) {
	s := readShape(stored)
	raw, isJSON := v.(json.RawMessage)
	isBytes := once.FormOf(reflect.TypeOf(v)) == once.FormBytes
	var err error
	switch {
	case s.Kind == kindBytes && isBytes:
		return v, nil
	case s.Kind == kindBytes && isJSON:
		var b []byte
		if err = json.Unmarshal(raw, &b); err == nil && string(raw) != "null" {
			return b, nil
		}
		err = errShape
	case isBytes || s.Kind == kindBytes:
		err = errShape
	default:
		var text []byte
		if text, err = once.Marshal(v); err == nil {
			err = s.check(text)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("is not what the function returns: give %v", s) // the decoder's error may quote the value
	}
	return v, nil
}

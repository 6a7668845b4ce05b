package once

import (
	"bytes"
	"cmp"
	"encoding"
	"fmt"
	"io"
	"reflect"
	"strings"
)

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	isError       = reflect.TypeFor[error]()
	isReader      = reflect.TypeFor[io.Reader]()
)

// Silent returns the first part of v whose JSON is the same for every value, with its type: such
// values would be one request. It is empty if there is none. text is the JSON of v.
//
// Such parts are structs without exported fields, fields that encoding/json leaves out because two
// have one name, errors and readers. The type of v decides, and the values of interfaces are looked
// at only if the text has an empty object: a part of v that is left out or nil today is not so tomorrow.
func Silent(v any, text []byte) string {
	t := reflect.TypeOf(v)
	if t == nil {
		return ""
	}
	switch known := jsonTypeOf(t); {
	case known.silent != "" || !known.open || !bytes.Contains(text, []byte(`{}`)):
		return known.silent
	}
	return silentValue(reflect.ValueOf(v), "")
}

// visit is a type where it is addressable, or not: encoding/json calls a method of *T only then.
type visit struct {
	t           reflect.Type
	addressable bool
}

// own reports whether the type makes its JSON itself.
func (v visit) own() bool {
	implements := func(t reflect.Type) bool { return t.Implements(marshaler) || t.Implements(textMarshaler) }
	return v.t.Kind() != reflect.Interface && (implements(v.t) || v.addressable && implements(reflect.PointerTo(v.t)))
}

func silentType(t reflect.Type, addressable bool, path string, seen map[visit]bool) string {
	v := visit{t, addressable}
	if seen[v] || v.own() {
		return ""
	}
	seen[v] = true
	silent := fmt.Sprintf("%s (%v)", cmp.Or(path, "its value"), t)
	if t.Implements(isError) || t.Implements(isReader) {
		return silent
	}
	switch t.Kind() {
	case reflect.Pointer:
		return silentType(t.Elem(), true, path, seen)
	case reflect.Slice:
		return silentType(t.Elem(), true, path+"[]", seen)
	case reflect.Array:
		return silentType(t.Elem(), addressable, path+"[]", seen)
	case reflect.Map:
		return silentType(t.Elem(), false, path+"[]", seen)
	case reflect.Struct:
		fields, twice := jsonFields(t)
		if twice != "" {
			return fmt.Sprintf("%s.%s (two fields of %v have this name)", path, twice, t)
		}
		if len(fields) == 0 && t.NumField() > 0 {
			return silent
		}
		for _, f := range fields {
			if found := silentType(f.t, addressable || f.behind, path+"."+f.name, seen); found != "" {
				return found
			}
		}
	}
	return ""
}

// silentValue looks at the values of interfaces.
func silentValue(v reflect.Value, path string) string {
	switch t := v.Type(); {
	case visit{t, v.CanAddr()}.own():
		return ""
	case t.Kind() == reflect.Interface && !v.IsNil():
		if found := jsonTypeOf(v.Elem().Type()).silent; found != "" {
			return strings.TrimSpace(path + " " + found)
		}
		return silentValue(v.Elem(), path)
	case t.Kind() == reflect.Pointer && !v.IsNil():
		return silentValue(v.Elem(), path)
	case t.Kind() == reflect.Map:
		for key, part := range v.Seq2() {
			if found := silentValue(part, fmt.Sprintf("%s[%.40v]", path, key)); found != "" {
				return found
			}
		}
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		for i := range v.Len() {
			if found := silentValue(v.Index(i), path+"[]"); found != "" {
				return found
			}
		}
	case t.Kind() == reflect.Struct:
		fields, _ := jsonFields(t)
		for _, f := range fields {
			part, err := v.FieldByIndexErr(f.index)
			if err != nil {
				continue // of an embedded pointer that is nil
			}
			if found := silentValue(part, path+"."+f.name); found != "" {
				return found
			}
		}
	}
	return ""
}

// jsonField is a field of a struct as encoding/json sees it.
type jsonField struct {
	name   string
	tagged bool
	index  []int
	t      reflect.Type
	behind bool // behind an embedded pointer, so addressable
}

// jsonFields returns the fields that encoding/json writes. twice is the first name that two fields
// of the same depth have, because of which it writes neither.
func jsonFields(t reflect.Type) (fields []jsonField, twice string) {
	known := map[string]bool{}
	seen := map[reflect.Type]bool{}
	level := []jsonField{{t: t}}
	for len(level) > 0 {
		var found, next []jsonField
		for _, outer := range level {
			if !seen[outer.t] {
				a, b := outer.inner()
				found, next = append(found, a...), append(next, b...)
			}
		}
		for _, outer := range level {
			seen[outer.t] = true
		}
		at := map[string][]jsonField{}
		for _, f := range found {
			at[f.name] = append(at[f.name], f)
		}
		for _, f := range found {
			if known[f.name] {
				continue
			}
			known[f.name] = true
			f, one := dominant(at[f.name])
			if !one {
				return nil, f.name
			}
			fields = append(fields, f)
		}
		level = next
	}
	return fields, ""
}

// inner returns the fields of an embedded struct, and the structs embedded in it.
func (outer jsonField) inner() (fields, embedded []jsonField) {
	for i := range outer.t.NumField() {
		f := outer.t.Field(i)
		tag := f.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		field := jsonField{cmp.Or(name, f.Name), name != "", append(append([]int(nil), outer.index...), i), f.Type, outer.behind}
		plain := f.Type
		if f.Anonymous && plain.Kind() == reflect.Pointer {
			plain = plain.Elem()
		}
		switch isStruct := plain.Kind() == reflect.Struct; {
		case tag == "-", !f.IsExported() && !(f.Anonymous && isStruct):
		case f.Anonymous && isStruct && name == "":
			field.behind = field.behind || plain != f.Type
			field.t = plain
			if a, b := field.inner(); len(a)+len(b) == 0 && f.IsExported() {
				fields = append(fields, field) // none of its fields stands for it
				continue
			}
			embedded = append(embedded, field)
		case f.IsExported() || f.Anonymous:
			fields = append(fields, field)
		}
	}
	return fields, embedded
}

// dominant returns the field that encoding/json takes of those with one name and depth.
func dominant(same []jsonField) (f jsonField, one bool) {
	if len(same) == 1 {
		return same[0], true
	}
	for _, s := range same {
		if s.tagged {
			if one {
				return f, false
			}
			f, one = s, true
		}
	}
	return f, one
}

package idempotency

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBusinessID bounds what BusinessID of a result returns, in bytes.
const MaxBusinessID = 255

// maxCodecName bounds Codec.Name, in bytes.
const maxCodecName = 64

// Identified is a result that the business has an id for, such as the number of
// a refund. The id is kept with the key when the result itself is gone: see
// [ExpiredError] and Options.BodyLife. At most 255 bytes of UTF-8 without NUL;
// it must be nothing that has to be erased with the person it is about.
type Identified interface{ BusinessID() string }

// ID is a result that is nothing but a business id: the caller reads the rest
// by it, as it is now.
type ID string

// BusinessID is the id itself.
func (id ID) BusinessID() string { return string(id) }

// Codec turns results, and rejections, into the bytes that are stored and back:
// it encrypts, or compresses. It is safe for concurrent use and asks no network,
// because it runs inside the transaction.
type Codec interface {
	// Name is stored beside each result, so that a program that lacks the codec
	// says which one it needs: 1 to 64 letters, digits and any of "-_.:", such
	// as "aes-gcm:2026". Another key or format is another name.
	Name() string
	// Encode must not change plain. key is the hash of the record's key, 32
	// bytes: with it as associated data, a result that was copied to another
	// row does not decode.
	Encode(plain, key []byte) (stored []byte, err error)
	// Decode is Encode's way back, and must not change stored.
	Decode(stored, key []byte) (plain []byte, err error)
}

// ResultError means that an operation was done and that this program cannot
// read its stored result: T is another type than it was stored from, or the
// codec is missing or refuses it. Nothing was executed.
type ResultError struct {
	// Type is the T that was asked for, Stored the form in which the result
	// is: "json" or "bytes", and behind a "+" the name of its codec.
	Type, Stored string
	// BusinessID is the result's, if it had one.
	BusinessID string
	Err        error
}

func (e *ResultError) Error() string {
	return fmt.Sprintf("idempotency: done before, but its result, stored as %q, is not to be read as %s: %v", e.Stored, e.Type, e.Err)
}

func (e *ResultError) Unwrap() error { return e.Err }

// The forms of a result: slices of bytes are stored as they are.
const (
	formJSON  = "json"
	formBytes = "bytes"
)

var marshaler = reflect.TypeFor[json.Marshaler]()

// formOf is how values of T are stored.
func formOf(t reflect.Type) string {
	if t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !t.Implements(marshaler) {
		return formBytes
	}
	return formJSON
}

// verdict is what an operation came to, as it is stored.
type verdict struct {
	state      int
	result     []byte
	codec      string // the form, and "+name" of a Codec
	businessID string
}

// verdict makes the record of a result, or of a rejection.
func (o *Options) verdict(c *claim, state int, v any) (verdict, error) {
	out := verdict{state: state, codec: formOf(reflect.TypeOf(v))}
	var err error
	if out.codec == formBytes {
		out.result = bytes.Clone(reflect.ValueOf(v).Bytes())
	} else if out.result, err = json.Marshal(v); err != nil {
		return out, fmt.Errorf("idempotency: the result has no JSON form: %w", err)
	}
	if out.businessID, err = businessID(v); err != nil {
		return out, err
	}
	if o.Codec != nil {
		plain := out.result
		if out.result, err = o.Codec.Encode(bytes.Clone(plain), c.hash[:]); err != nil {
			return out, fmt.Errorf("idempotency: Options.Codec: %w", err)
		}
		out.codec += "+" + o.Codec.Name()
		// What cannot be read again must not be committed.
		if back, err := o.plain(c, out); err != nil || !bytes.Equal(back, plain) {
			return out, invalid("Options.Codec", fmt.Sprintf("does not decode what it has encoded: %v", err))
		}
	}
	if len(out.result) > o.MaxResult {
		return out, invalid("result", fmt.Sprintf("has %d bytes as %s, Options.MaxResult is %d: store an id and read the rest by it", len(out.result), out.codec, o.MaxResult))
	}
	return out, nil
}

func businessID(v any) (string, error) {
	is, ok := v.(Identified)
	if !ok {
		return "", nil
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Pointer && r.IsNil() {
		return "", nil
	}
	id := is.BusinessID()
	if len(id) > MaxBusinessID || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return "", invalid("result", fmt.Sprintf("its BusinessID %.40q is not at most %d bytes of UTF-8 without NUL", id, MaxBusinessID))
	}
	return id, nil
}

// plain undoes the codec.
func (o *Options) plain(c *claim, v verdict) ([]byte, error) {
	_, name, coded := strings.Cut(v.codec, "+")
	if !coded {
		return v.result, nil
	}
	for _, codec := range append([]Codec{o.Codec}, o.FormerCodecs...) {
		if codec != nil && codec.Name() == name {
			return codec.Decode(bytes.Clone(v.result), c.hash[:])
		}
	}
	return nil, fmt.Errorf("codec %q is not the store's: add it to Options.FormerCodecs", name)
}

// decode reads a stored result into the value that to points to.
func (o *Options) decode(c *claim, v verdict, to any) error {
	value := reflect.ValueOf(to).Elem()
	form := formOf(value.Type())
	plain, err := o.plain(c, v)
	if stored, _, _ := strings.Cut(v.codec, "+"); err == nil && stored != form {
		err = fmt.Errorf("values of that type are stored as %q", form)
	}
	switch {
	case err != nil:
	case form == formJSON:
		err = json.Unmarshal(plain, to)
	case len(plain) > 0: // nil and empty are one to the engines' drivers
		value.SetBytes(bytes.Clone(plain))
	}
	if err != nil {
		return &ResultError{Type: value.Type().String(), Stored: v.codec, BusinessID: v.businessID, Err: err}
	}
	return nil
}

func (o *Options) checkCodecs() error {
	for i, codec := range append([]Codec{o.Codec}, o.FormerCodecs...) {
		if codec == nil && i == 0 {
			continue
		}
		if codec == nil {
			return invalid("Options.FormerCodecs", "one is nil")
		}
		name := codec.Name()
		odd := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:", r)
		}
		if name == "" || len(name) > maxCodecName || strings.ContainsFunc(name, odd) {
			return invalid("Options.Codec", fmt.Sprintf("its name %.70q is not 1 to %d letters, digits and any of \"-_.:\"", name, maxCodecName))
		}
	}
	o.FormerCodecs = slices.Clone(o.FormerCodecs)
	return nil
}

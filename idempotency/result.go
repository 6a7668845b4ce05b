package idempotency

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/errcode"
)

const maxBusinessID = 255

// maxCodecName bounds Codec.Name, in bytes.
const maxCodecName = 64

// Identified is a result with a business id, such as the number of a refund. The id is kept with
// the key after the result is gone: see [ExpiredError] and Options.ResultTTL. It has at most 255
// bytes of UTF-8 without NUL. It must not contain personal data that has to be erased.
type Identified interface{ BusinessID() string }

// ID is a result that consists of a business id only. The caller uses it to read the current data.
type ID string

// BusinessID returns the id.
func (id ID) BusinessID() string { return string(id) }

// Codec encodes results and rejections for storage, and decodes them: it encrypts, or compresses.
// It must be safe for concurrent use, and must not use the network, because it runs inside the
// transaction.
type Codec interface {
	// Name is stored with each result, so that a program without the codec can report which one it
	// needs: 1 to 64 letters, digits and any of "-_.:", such as "aes-gcm:2026". Another encryption
	// key or format needs another name.
	Name() string
	// Encode must not change plain. place is a hash, 32 bytes, of the place where the result is
	// stored: namespace, owner, operation and key, whether it is a result or a rejection (or a
	// request, the result of a step, the body of an event), and whether it is JSON or bytes. If the
	// codec uses it as associated data, what was copied to another place, or relabelled, does not
	// decode.
	Encode(plain, place []byte) (stored []byte, err error)
	// Decode reverses Encode. It must not change stored.
	Decode(stored, place []byte) (plain []byte, err error)
}

var _ = errcode.Type[*ResultError]("result-unreadable")

// ResultError means that the operation was executed, or rejected, and this program cannot read what
// it stored: T differs from the type that was stored, or the codec is missing or refuses the result.
// Nothing was executed now. A call that is rolled back because its own result cannot be stored
// returns [holdfast.ErrInvalid] instead.
type ResultError struct {
	// Type is the T of the call. Stored is the form of the stored result: "json" or "bytes",
	// followed by "+" and the name of its codec, if any.
	Type, Stored string
	// BusinessID is the business id of the result, if it had one.
	BusinessID string
	// Rejected reports that the operation was rejected and not executed.
	Rejected bool
	Err      error
}

func (e *ResultError) Error() string {
	if e.Rejected {
		return fmt.Sprintf("idempotency: rejected before, but this program cannot read the rejection, stored as %q: %v", e.Stored, e.Err)
	}
	return fmt.Sprintf("idempotency: done before, but this program cannot read its result, stored as %q, as %s: %v", e.Stored, e.Type, e.Err)
}

func (e *ResultError) Unwrap() error { return e.Err }

// Is makes it an outcome: see InnerError.
func (e *ResultError) Is(target error) bool { return target == errResult }

var errResult = errors.New("idempotency: done before, and its result is unreadable")

var _ = errcode.Type[*MissingCodecError]("codec-missing")

// MissingCodecError means that a result was stored with a codec, such as that of another encryption
// key, that is neither Options.Codec nor one of Options.FormerCodecs. A *ResultError wraps it.
type MissingCodecError struct{ Name string }

func (e *MissingCodecError) Error() string {
	return fmt.Sprintf("codec %q is not the store's: add it to Options.FormerCodecs", e.Name)
}

// storedResult is a result, or a rejection, in its stored form.
type storedResult struct {
	state      int
	result     []byte
	codec      string // the form, and "+name" of a Codec
	businessID string
}

// encode makes the stored form of a result or a rejection.
func (o *Options) encode(c *call, state int, v any) (storedResult, error) {
	out := storedResult{state: state, codec: once.FormOf(reflect.TypeOf(v))}
	var err error
	if out.codec == once.FormBytes {
		out.result = bytes.Clone(reflect.ValueOf(v).Bytes())
	} else if out.result, err = once.Marshal(v); err != nil {
		return out, fmt.Errorf("%w: %w", once.Invalid(c.what(state), "has no JSON form"), err)
	}
	if out.businessID, err = businessID(v); err != nil {
		return out, err
	}
	if o.Codec != nil {
		plain := out.result
		if out.result, err = o.Codec.Encode(bytes.Clone(plain), c.bound(out)); err != nil {
			return out, fmt.Errorf("idempotency: Options.Codec: %w", err)
		}
		out.codec += "+" + o.Codec.Name()
		// Refuse a result that does not decode again, so that it is never committed.
		if back, err := o.plain(c, out); err != nil || !bytes.Equal(back, plain) {
			return out, once.Invalid("Options.Codec", fmt.Sprintf("does not decode what it has encoded: %v", err))
		}
	}
	if len(out.result) > o.MaxResult {
		return out, once.Invalid("result", fmt.Sprintf("has %d bytes as %s, Options.MaxResult is %d: store an id and read the rest by it", len(out.result), out.codec, o.MaxResult))
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
	if len(id) > maxBusinessID || !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
		return "", once.Invalid("result", fmt.Sprintf("its BusinessID %.40q is not at most %d bytes of UTF-8 without NUL", id, maxBusinessID))
	}
	return id, nil
}

// plain reverses the codec.
func (o *Options) plain(c *call, v storedResult) ([]byte, error) {
	_, name, coded := strings.Cut(v.codec, "+")
	if !coded {
		return v.result, nil
	}
	for _, codec := range append([]Codec{o.Codec}, o.FormerCodecs...) {
		if codec != nil && codec.Name() == name {
			return codec.Decode(bytes.Clone(v.result), c.bound(v))
		}
	}
	return nil, &MissingCodecError{Name: name}
}

// bound returns what a codec binds a value to.
func (c *call) bound(v storedResult) []byte {
	form, _, _ := strings.Cut(v.codec, "+")
	at := c.place
	switch {
	case at.ValueKind != "":
	case v.state == rejected:
		at.ValueKind = once.RecordRejection
	default:
		at.ValueKind = once.RecordResult
	}
	sum := at.Hash(c.hash, form)
	return sum[:]
}

// undecodable refuses a value that does not decode again.
func undecodable(what string, err error) error {
	return fmt.Errorf("%w: %w", once.Invalid(what, "does not decode after encoding"), err)
}

// what names a value of c in errors.
func (c *call) what(state int) string {
	switch {
	case c.place.ValueKind != "":
		return string(c.place.ValueKind)
	case state == rejected:
		return "rejection"
	}
	return "result"
}

// decode reads a stored value into the value that to points to. It returns a *ResultError for what
// an operation left behind.
func (o *Options) decode(c *call, v storedResult, to any) error {
	err := o.read(c, v, to)
	t := reflect.TypeOf(to).Elem().String()
	switch kind := c.place.ValueKind; {
	case err == nil:
		return nil
	case kind == once.StagedRequest, kind == once.EventBody, kind == once.Proposed: // of these, nothing is known to be done
		return fmt.Errorf("idempotency: this program cannot read the %s, stored as %q, as %s: %w", kind, v.codec, t, err)
	default:
		no := kind == once.StagedRejection || kind == once.StepRejection || kind == "" && v.state == rejected
		return &ResultError{Type: t, Stored: v.codec, BusinessID: v.businessID, Rejected: no, Err: err}
	}
}

// read is decode with the bare error.
func (o *Options) read(c *call, v storedResult, to any) error {
	value := reflect.ValueOf(to).Elem()
	form := once.FormOf(value.Type())
	plain, err := o.plain(c, v)
	if stored, _, _ := strings.Cut(v.codec, "+"); err == nil && stored != form {
		err = fmt.Errorf("values of that type are stored as %q", form)
	}
	switch {
	case err != nil:
	case form == once.FormJSON:
		err = once.Unmarshal(plain, to)
	case len(plain) > 0: // drivers do not distinguish nil and empty
		value.SetBytes(bytes.Clone(plain))
	}
	return err
}

func (o *Options) checkCodecs() error {
	for i, codec := range append([]Codec{o.Codec}, o.FormerCodecs...) {
		if codec == nil && i == 0 {
			continue
		}
		if codec == nil {
			return once.Invalid("Options.FormerCodecs", "one is nil")
		}
		name := codec.Name()
		odd := func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.:", r)
		}
		if name == "" || len(name) > maxCodecName || strings.ContainsFunc(name, odd) {
			return once.Invalid("Options.Codec", fmt.Sprintf("its name %.70q is not 1 to %d letters, digits and any of \"-_.:\"", name, maxCodecName))
		}
	}
	o.FormerCodecs = slices.Clone(o.FormerCodecs)
	return nil
}

package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// canonical is how fingerprints are taken: 1 is the SHA-256 of Canonical, or
	// of the caller's own bytes. It is stored in the lower bits of a version.
	canonical     = 1
	canonicalBits = 4
	// MaxRequestVersion bounds Op.RequestVersion.
	MaxRequestVersion = 2047
)

// prints are the fingerprints of one request, by the version of its form.
type prints struct {
	version int // of this program's form, as it is stored
	of      map[int][]byte
}

// own is nil where nothing is to be checked.
func (p *prints) own() []byte { return p.of[p.version] }

// compare finds that a stored fingerprint is another request's. What is in a
// form that this program does not know cannot be compared.
func (p *prints) compare(version int, stored []byte) error {
	given := p.of[version]
	if given == nil || stored == nil || bytes.Equal(given, stored) {
		return nil
	}
	return &MismatchError{Stored: stored, Given: given}
}

func storedVersion(version int) int { return version<<canonicalBits | canonical }

func fingerprints(op Op) (prints, error) {
	p := prints{version: storedVersion(op.RequestVersion), of: map[int][]byte{}}
	given := 0
	for _, is := range []bool{op.Request != nil, op.Fingerprint != nil, op.NoFingerprint} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return p, invalid("Op.Request", "give exactly one of Request, Fingerprint and NoFingerprint")
	case op.RequestVersion < 0 || op.RequestVersion > MaxRequestVersion:
		return p, invalid("Op.RequestVersion", fmt.Sprintf("%d is not between 0 (default) and %d", op.RequestVersion, MaxRequestVersion))
	case op.NoFingerprint && len(op.Earlier) > 0:
		return p, invalid("Op.Earlier", "is given, and NoFingerprint: leave one of them out")
	case op.NoFingerprint:
		return p, nil
	}
	own := op.Request
	if op.Fingerprint != nil {
		own = op.Fingerprint
	}
	if err := p.add(op, op.RequestVersion, own); err != nil {
		return p, err
	}
	for version, request := range op.Earlier {
		if version == op.RequestVersion || version < 0 || version > MaxRequestVersion {
			return p, invalid("Op.Earlier", fmt.Sprintf("version %d is Op.RequestVersion, or not between 0 and %d", version, MaxRequestVersion))
		}
		if err := p.add(op, version, request); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *prints) add(op Op, version int, request any) error {
	b, isBytes := request.([]byte)
	if op.Fingerprint == nil {
		var err error
		if b, err = Canonical(request); err != nil {
			return err
		}
	} else if !isBytes {
		return invalid("Op.Earlier", "is not []byte, which Op.Fingerprint is: give the same kind for every version")
	}
	sum := sha256.Sum256(b)
	p.of[storedVersion(version)] = sum[:]
	return nil
}

// escape finds an escape of JSON, with both halves of a surrogate pair.
var escape = regexp.MustCompile(`(?i)\\(?:ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|u[0-9a-f]{4}|.)`)

// replaced is whether a decoder would read U+FFFD where b, which is valid JSON,
// has something else: bytes that are no UTF-8, or half a surrogate pair; or
// encoding/json has written its escape for the former.
func replaced(b []byte) bool {
	if !utf8.Valid(b) {
		return true
	}
	if !bytes.Contains(b, []byte(`\u`)) {
		return false
	}
	for _, e := range escape.FindAll(b, -1) {
		if len(e) != len(`\uffff`) {
			continue
		}
		code, err := strconv.ParseUint(string(e[2:]), 16, 16)
		if err != nil || code == utf8.RuneError || utf16.IsSurrogate(rune(code)) {
			return true
		}
	}
	return false
}

// Canonical is the JSON form of a request that its fingerprint is made of:
// objects with sorted members, no white space, numbers as they were written
// (so that integers past 2^53 stay apart). json.RawMessage is taken as JSON
// from outside: the order of its members and its white space do not matter, and
// of repeated members the last counts. Text that is not UTF-8 is
// refused, and so is U+FFFD written as an escape.
func Canonical(request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, invalid("Op.Request", fmt.Sprintf("has no JSON form: %v", err))
	}
	if replaced(b) {
		return nil, invalid("Op.Request", "has text that is not UTF-8, which JSON cannot tell apart: use Op.Fingerprint")
	}
	if t := reflect.TypeOf(request); string(b) == "{}" && t != nil && t.Kind() == reflect.Struct && t.NumField() > 0 {
		return nil, invalid("Op.Request", "is a struct whose JSON is empty: export its fields, or every request is the same")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, invalid("Op.Request", fmt.Sprintf("has no JSON form: %v", err))
	}
	return json.Marshal(v)
}

package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
)

// fingerprintVersion is stored beside each fingerprint: 1 is the SHA-256 of
// Canonical, or of the caller's own bytes.
const fingerprintVersion = 1

func fingerprint(op Op) ([]byte, error) {
	given := 0
	for _, is := range []bool{op.Request != nil, op.Fingerprint != nil, op.NoFingerprint} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, invalid("Op.Request", "give exactly one of Request, Fingerprint and NoFingerprint")
	}
	if op.NoFingerprint {
		return nil, nil
	}
	b := op.Fingerprint
	if b == nil {
		var err error
		if b, err = Canonical(op.Request); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// replaced finds the escape that encoding/json writes for text that is not
// UTF-8; behind an odd number of backslashes it is text.
var replaced = regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)

// Canonical is the JSON form of a request that its fingerprint is made of:
// objects with sorted members, no white space, numbers as they were written
// (so that integers past 2^53 stay apart). json.RawMessage is taken as JSON
// from outside: the order of its members and its white space do not matter, and
// of repeated members the last counts. Text that is not UTF-8 is refused.
func Canonical(request any) ([]byte, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return nil, invalid("Op.Request", fmt.Sprintf("has no JSON form: %v", err))
	}
	if replaced.Match(b) {
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

package idempotency

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/canonical"
)

const (
	// canonicalForm is the method of fingerprinting: 2 is the SHA-256 of Canonical, or of the
	// caller's own bytes. It is stored in the lower bits of a version.
	canonicalForm     = 2
	canonicalBits     = 4
	maxRequestVersion = 2047
)

// fingerprints holds the fingerprints of one request, by the version of its form.
type fingerprints struct {
	version int    // the version of this program's form, as stored
	own     []byte // nil: there is nothing to check
	earlier map[int][]byte
}

// compare returns a *MismatchError if the stored fingerprint belongs to another request. A
// fingerprint in a form that this program does not know cannot be compared and passes.
func (p *fingerprints) compare(version int, stored []byte) error {
	given := p.own
	if version != p.version {
		given = p.earlier[version]
	}
	if given == nil || stored == nil || bytes.Equal(given, stored) {
		return nil
	}
	return &MismatchError{Stored: stored, Given: given}
}

func storedVersion(version int) int { return version<<canonicalBits | canonicalForm }

func takeFingerprints(op Op) (fingerprints, error) {
	p := fingerprints{version: storedVersion(op.RequestVersion)}
	given := 0
	for _, is := range []bool{op.Request != nil, op.Fingerprint != nil, op.NoFingerprint} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return p, once.Invalid("Op.Request", "give exactly one of Request, Fingerprint and NoFingerprint")
	case op.RequestVersion < 0 || op.RequestVersion > maxRequestVersion:
		return p, once.Invalid("Op.RequestVersion", fmt.Sprintf("%d is not between 0 (default) and %d", op.RequestVersion, maxRequestVersion))
	case op.NoFingerprint && len(op.Earlier) > 0:
		return p, once.Invalid("Op.Earlier", "is given, and NoFingerprint: leave one of them out")
	case op.NoFingerprint:
		return p, nil
	}
	own := op.Request
	if op.Fingerprint != nil {
		own = op.Fingerprint
	}
	var err error
	if p.own, err = fingerprint(op, own); err != nil {
		return p, err
	}
	if len(op.Earlier) > 0 {
		p.earlier = make(map[int][]byte, len(op.Earlier))
	}
	for version, request := range op.Earlier {
		if version == op.RequestVersion || version < 0 || version > maxRequestVersion {
			return p, once.Invalid("Op.Earlier", fmt.Sprintf("version %d is Op.RequestVersion, or not between 0 and %d", version, maxRequestVersion))
		}
		if p.earlier[storedVersion(version)], err = fingerprint(op, request); err != nil {
			return p, err
		}
	}
	return p, nil
}

func fingerprint(op Op, request any) ([]byte, error) {
	h := sha256.New()
	if b, isBytes := request.([]byte); op.Fingerprint == nil {
		if err := writeCanonical(h, request); err != nil {
			return nil, err
		}
	} else if isBytes {
		h.Write(b)
	} else {
		return nil, once.Invalid("Op.Earlier", "is not []byte, which Op.Fingerprint is: give the same kind for every version")
	}
	return h.Sum(nil), nil
}

// Canonical returns the JSON form of a request from which its fingerprint is made: that of RFC 8785,
// in which numbers keep all their digits (so that those which one double stands for stay distinct).
// json.RawMessage is parsed as external JSON: the order of its members, its white space and how a
// number is written do not matter, and the last of repeated members counts.
//
// Canonical refuses what JSON would make equal: text that is not UTF-8, U+FFFD written as an escape,
// and types of which a part has the same JSON for every value, such as a struct without exported
// fields, at any depth, an error or an [io.Reader]. It also refuses numbers beyond the range of a
// double, and those nearer to zero than 1e-9999.
func Canonical(request any) ([]byte, error) {
	var b bytes.Buffer
	if err := writeCanonical(&b, request); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeCanonical writes the canonical form of a request. On an error it may have written a part.
// Time and memory are proportional to the request's JSON.
func writeCanonical(w io.Writer, request any) error {
	text, err := textOf(request)
	if err != nil {
		return once.Invalid("Op.Request", fmt.Sprintf("has no JSON form: %v", err))
	}
	if part := once.Silent(request); part != "" {
		return once.Invalid("Op.Request", part+" has the same JSON for every value, and so every request the same fingerprint: export its fields, "+
			`give the type MarshalJSON, leave it out by json:"-", or use Op.Fingerprint`)
	}
	switch err := canonical.Write(w, text); {
	case errors.Is(err, canonical.ErrText):
		return once.Invalid("Op.Request", "has text that is not UTF-8, which JSON cannot tell apart: use Op.Fingerprint")
	case err != nil:
		return once.Invalid("Op.Request", fmt.Sprintf("has no JSON form: %v", err))
	}
	return nil
}

// textOf returns a request as JSON. JSON input is not encoded again.
func textOf(request any) ([]byte, error) {
	if raw, is := request.(json.RawMessage); is && raw != nil {
		return raw, nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // which would write six bytes for one character
	err := e.Encode(request)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

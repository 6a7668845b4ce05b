package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// Limits of an Op, in bytes.
const (
	MaxKey  = 1024
	MaxName = 128
)

// Op is one operation to be done once.
type Op struct {
	// Tenant is whose operation it is: a stable, authenticated id, at most
	// 128 bytes. Required, unless the store is SingleTenant.
	Tenant string
	// Name is the operation's, such as "refund": stable, not a path of the
	// code, at most 128 bytes. Required.
	Name string
	// Key is the intent: 1 to 1024 bytes, compared byte for byte. Derive it
	// from the business (see KeyOf): two keys minted for one intent are two
	// intents.
	Key string

	// Request is what the key stands for; another request with the same key
	// is a mismatch. Its JSON form is fingerprinted (see Canonical), so put
	// the fields here that matter. Exactly one of Request, Fingerprint and
	// NoFingerprint is required.
	Request any
	// Fingerprint is the caller's own canonical form of the request.
	Fingerprint []byte
	// NoFingerprint gives up the check.
	NoFingerprint bool
	// RequestVersion is the version of Request's, or Fingerprint's, form: raise
	// it when a deploy adds fields or changes what they say. It is kept with
	// the fingerprint. Earlier is the same request in the forms of other
	// versions, so that records of a program that has, or had, them are
	// compared too: values for Request, []byte for Fingerprint. A record whose
	// version is none of these is taken for the same request. 0 to 2047.
	RequestVersion int
	Earlier        map[int]any

	// Wait bounds the wait for another process that holds the key. Default:
	// the store's. It does not bound the operation itself: ctx does.
	Wait time.Duration
	// NoWait answers ErrInProgress at once instead.
	NoWait bool
}

// KeyOf makes a key of business fields: order, refund number. The parts are
// joined by "/", and a part's own "/" and "%" are escaped, so that different
// parts never make the same key.
func KeyOf(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = keyEscaper.Replace(p)
	}
	return strings.Join(escaped, "/")
}

var keyEscaper = strings.NewReplacer("%", "%25", "/", "%2F")

// claim is a checked Op.
type claim struct {
	op       Op
	hash     [sha256.Size]byte
	prints   prints
	attempt  []byte // of the current transaction
	attempts int    // transactions, so far
	wait     time.Duration
	expired  bool // the record found has outlived its key
	bodyLife any  // µs or nil
	keyLife  any
}

func (o *Options) check(op Op) (*claim, error) {
	if o.SingleTenant && op.Tenant != "" {
		return nil, invalid("Op.Tenant", "is given, and the store is SingleTenant: leave one of them out")
	}
	if !o.SingleTenant && op.Tenant == "" {
		return nil, invalid("Op.Tenant", "is missing: give the authenticated tenant's id, or open the store as SingleTenant")
	}
	if err := checkName("Op.Tenant", op.Tenant, o.SingleTenant); err != nil {
		return nil, err
	}
	if err := checkName("Op.Name", op.Name, false); err != nil {
		return nil, err
	}
	switch {
	case op.Key == "":
		return nil, invalid("Op.Key", "is empty: derive it from the business, for instance KeyOf(order, refundNumber)")
	case len(op.Key) > MaxKey:
		return nil, invalid("Op.Key", fmt.Sprintf("has %d bytes, at most %d are allowed: hash the long part", len(op.Key), MaxKey))
	case op.Wait < 0:
		return nil, invalid("Op.Wait", "is negative: use NoWait")
	}
	fp, err := fingerprints(op)
	if err != nil {
		return nil, err
	}
	c := &claim{op: op, prints: fp, wait: op.Wait, bodyLife: life(o.BodyLife), keyLife: life(o.KeyLife)}
	if c.wait == 0 {
		c.wait = o.Wait
	}
	c.hash = hashKey(o.Namespace, op.Tenant, op.Name, op.Key)
	return c, nil
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}

func checkName(field, name string, emptyOK bool) error {
	switch {
	case name == "" && !emptyOK:
		return invalid(field, "is missing")
	case len(name) > MaxName:
		return invalid(field, fmt.Sprintf("has %d bytes, at most %d are allowed", len(name), MaxName))
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return invalid(field, fmt.Sprintf("%.40q is not UTF-8 without NUL bytes", name))
	}
	return nil
}

// hashKey hashes the parts, each behind its length, so that no two different
// lists of parts are the same bytes.
func hashKey(parts ...string) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write([]byte("holdfast record 1"))
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	h.Sum(sum[:0])
	return sum
}

func life(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Microseconds()
}

package idempotency

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/blockers"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Limits of an Op, in bytes.
const (
	MaxKey  = 1024
	MaxName = core.MaxName
)

// Op is one operation to execute once.
type Op struct {
	// Owner says whose operation it is: the id of a tenant, merchant or account, stable and
	// authenticated, at most 128 bytes. Required, unless the DB is SingleOwner.
	Owner string
	// Name is the name of the operation, such as "refund": stable, not a path of the code, at most
	// 128 bytes. Required.
	Name string
	// Key identifies the intent: 1 to 1024 bytes, compared byte for byte. Derive it from the
	// business (see KeyOf): two keys generated for one intent are two intents (but see Similar).
	Key string

	// Request is the request that the key stands for. Another request with the same key is a
	// mismatch. Its JSON form is fingerprinted (see Canonical), so include the fields that matter,
	// and export them: a type of which a part has no JSON is refused, such as a struct that embeds
	// time.Time beside other fields.
	// Exactly one of Request, Fingerprint and NoFingerprint is required.
	Request any
	// Fingerprint is the caller's own canonical form of the request.
	Fingerprint []byte
	// NoFingerprint disables the check.
	NoFingerprint bool
	// RequestVersion is the version of the form of Request or Fingerprint. Raise it when a deploy
	// adds fields or changes their meaning. It is stored with the fingerprint. Earlier holds the
	// same request in the forms of other versions, so that records of programs with those
	// versions, older or newer, are compared too: values for Request, []byte for Fingerprint. A
	// record whose version is none of these counts as the same request. 0 to 2047.
	RequestVersion int
	Earlier        map[int]any

	// Similar refuses an operation that is similar to an earlier one with another
	// key. Default: none; keys alone tell intents apart.
	Similar *Similar

	// Wait bounds the wait for another call that holds the key: 1 ms to 366 days. [holdfast.NoWait] returns
	// ErrInProgress at once. Default: the store's Wait. It does not bound the operation itself: ctx does.
	Wait time.Duration
}

// KeyOf builds a key from business fields, such as order and refund number. It joins the parts by
// "/" and escapes "/" and "%" inside a part, so that different parts never make the same key.
func KeyOf(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = keyEscaper.Replace(p)
	}
	return strings.Join(escaped, "/")
}

var keyEscaper = strings.NewReplacer("%", "%25", "/", "%2F")

// call is a checked Op. It does not change.
type call struct {
	op           Op
	hash         [sha256.Size]byte
	fingerprints fingerprints
	similar      *similar
	key          []any         // the first arguments of each statement: owner and hash
	wait         time.Duration // with noWait, for the outcome of a commit
	noWait       bool
	requestID    string // whom the call works for; empty for none
	// place is where the value of a staged operation is stored; empty for a record's.
	place once.Place
}

// pending is a call that does not have its key yet, with what its attempts have found out.
type pending struct {
	*call

	deadline time.Time       // of its wait
	expired  bool            // its record was found, and its KeyTTL is over
	watch    *blockers.Watch // nil before a wait has ended without the key
}

// Bounds of what a record says about its execution, in bytes. Longer texts are cut.
const (
	maxHolder    = 255
	maxProgram   = 128
	maxRequestID = 255
)

// requestID returns the request that ctx works for, as a record keeps it.
func requestID(ctx context.Context) string { return once.Cut(core.RequestID(ctx), maxRequestID) }

// executing returns the record that this call is about to make, without its result.
func (c *call) executing() *record {
	return &record{fingerprint: c.fingerprints.own, fingerprintVersion: c.fingerprints.version, requestID: c.requestID}
}

// args returns the arguments of a statement: those that identify the row, and more.
func (c *call) args(more ...any) []any {
	return append(append(make([]any, 0, maxArgs), c.key...), more...)
}

// maxArgs is how many arguments a statement may have.
const maxArgs = 19

func (o *Options) check(op Op) (*call, error) {
	if op.Owner != "" || o.owners != core.OneOwner {
		if err := o.owners.Check("Op.Owner", op.Owner); err != nil {
			return nil, err
		}
	}
	if err := core.CheckName("Op.Name", op.Name, false); err != nil {
		return nil, err
	}
	switch {
	case op.Key == "":
		return nil, once.Invalid("Op.Key", "is empty: derive it from the business, for instance KeyOf(order, refundNumber)")
	case len(op.Key) > MaxKey:
		return nil, once.Invalid("Op.Key", fmt.Sprintf("has %d bytes, at most %d are allowed: hash the long part", len(op.Key), MaxKey))
	case op.Wait != 0:
		if err := once.CheckWait("Op.Wait", "the store's Wait", op.Wait); err != nil {
			return nil, err
		}
	}
	fp, err := takeFingerprints(op)
	if err != nil {
		return nil, err
	}
	if o.HashKeys != nil {
		o.HashKeys.fingerprints(&fp)
		op.Key = o.HashKeys.Key(op.Key)
	}
	c := &call{op: op, fingerprints: fp, wait: op.Wait, noWait: op.Wait == holdfast.NoWait}
	if c.wait <= 0 {
		c.wait = o.Wait
	}
	c.hash = once.HashKey(o.Namespace, op.Owner, op.Name, op.Key)
	c.key = []any{op.Owner, c.hash[:]}
	if op.Similar != nil {
		if c.similar, err = o.similar(op); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func ttl(d time.Duration) any {
	if d <= 0 { // or Forever
		return nil
	}
	return d.Microseconds()
}

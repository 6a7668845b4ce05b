package once

import "time"

// Checked is a checked Op of package idempotency.
type Checked struct {
	ID   ID            // of its row
	Key  []byte        // as it is stored
	Wait time.Duration // for another call that holds the key
	// Fingerprint is the request's own; nil for none. Compare returns a *MismatchError if stored is the
	// fingerprint of another request.
	Fingerprint        []byte
	FingerprintVersion int
	Compare            func(version int, stored []byte) error
}

var ofStore func(store any) any

// RegisterStore is for package idempotency, which this package cannot import. of returns the inside.Store of an
// *idempotency.Store.
func RegisterStore(of func(store any) any) struct{} {
	ofStore = of
	return struct{}{}
}

// OfStore is for package inside.
func OfStore(store any) any { return ofStore(store) }

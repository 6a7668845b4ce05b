// Package idemclient is for programs that call an HTTP service with idempotency keys: one behind
// package idemhttp, or a payment provider that follows the IETF draft
// draft-ietf-httpapi-idempotency-key-header. It has the header fields and the syntax of keys, too. It
// links no database.
//
//	client := http.Client{Transport: &idemclient.Transport{}}
//	ctx = idemclient.WithKey(ctx, "order-42-refund-1") // one intent, even if it is sent many times
//
// A [Transport] retries with the same key while the outcome is open. It is for services that honour
// keys. A [SendOnce] never sends a request with a body twice. It is for those that may ignore keys.
package idemclient

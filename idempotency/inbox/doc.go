// Package inbox processes each message of one consumer once, although a broker may deliver it more
// often.
//
// The message's id is the key of an operation (see package idempotency). Claim, the consumer's
// writes and the record are one transaction. Acknowledge the message after its COMMIT. If the
// acknowledgement is lost, the broker delivers the message again, and it is a duplicate.
//
//	delivered --Process--> committed --Acknowledge--> gone
//	    ^                     |
//	    '--Redeliver, or the acknowledgement is lost--'
//
// [DispositionOf] maps the error of [Inbox.Process] to the reply to the broker.
//
// Limits: the id must come from the producer and be the same in each delivery. A message that is
// delivered after its key has expired ([idempotency.Options].KeyTTL, or RejectionTTL if it was
// rejected) is processed again. Messages are not ordered.
package inbox

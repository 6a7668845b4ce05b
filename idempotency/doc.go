// Package idempotency executes an operation once, however often it is requested. Every duplicate
// gets the result from the record that was committed together with the effect.
//
//	res, err := idempotency.Do(ctx, store, idempotency.Op{
//		Owner: merchant, Name: "refund",
//		Key: idempotency.KeyOf(order, refundNo), Request: request,
//	}, func(ctx context.Context, tx *sql.Tx) (Refund, error) {
//		return book(ctx, tx, request)
//	})
//
// # The life of a record
//
//	absent --claim--> claimed --fn, result, COMMIT--> succeeded --ResultTTL--> tombstone
//	   ^                 |-----Reject, COMMIT-------> rejected  --ResultTTL--> tombstone
//	   |--any error------'                                                        |
//	   '------------------------------- KeyTTL -----------------------------------'
//
// The claim is the first statement of the transaction: an insert under a unique key, whose row is
// uncommitted while the function runs. On PostgreSQL [Do] takes an advisory lock of the transaction
// instead, and inserts the record with its result, under the unique key, before COMMIT; at
// REPEATABLE READ and above, and in [DoTx], it takes the lock and inserts the row at once.
// Duplicates wait for row or lock, and a crash removes it. So no state "in progress" is left to
// clean up. Final states never change.
//
// # Two forms of record
//
// [Do] and [DoTx] keep a record in Holdfast's table. Package businessrow uses the caller's own row
// with its own unique key (refund_no) as the lock and the record. Package inbox uses records for
// the messages of a broker.
//
// # Two keys, one intent
//
// Two keys generated for one intent are two operations. [Op].Similar says what makes two operations
// alike, such as order and amount: another key within a window gets [ErrSimilar], unless the
// caller confirms.
//
// # Calls to the outside world
//
// The function of Do has effects in the database only. An operation that calls a provider runs in
// steps, and each step commits before the next begins: see package staged. With package operators,
// people resolve unknown outcomes.
//
// # Outcomes
//
// Executed and Replayed come with a nil error, in [Result].Outcome. In progress ([ErrInProgress]),
// mismatch ([ErrMismatch]), similar to an earlier one ([ErrSimilar]), too many ([ErrTooMany]), expired ([ErrExpired]) and
// unknown ([ErrUnknown]) are errors, as is a final [Rejection]. Only definite outcomes are stored.
//
// # What a record keeps
//
// A record keeps the result for Options.ResultTTL and the key for Options.KeyTTL. By default it
// keeps both for ever, and a rejection for 30 days (Options.RejectionTTL). [Codec] encrypts results. [Store.EraseScope] erases the results of an owner
// (the tenant, merchant or account whose operation it is). [Store.WithLease] makes a lease the
// record. See docs/reference/idempotency.md for more.
//
// If the answer to a commit is lost, Do resolves the outcome: it claims again, which waits for the
// ambiguous transaction, and then finds the record or runs the function again. If the database
// cannot be reached, Do returns ErrUnknown; a later call with the same key resolves it.
package idempotency

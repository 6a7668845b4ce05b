// Package idempotency does an operation once, however often it is asked for,
// and answers every duplicate from the record that was committed with the effect.
//
//	res, err := idempotency.Do(ctx, store, idempotency.Op{
//		Tenant: merchant, Name: "refund",
//		Key: idempotency.KeyOf(order, refundNo), Request: request,
//	}, func(ctx context.Context, tx *sql.Tx) (Refund, error) {
//		return book(ctx, tx, request)
//	})
//
// # The life of a record
//
//	absent --claim--> claimed --fn, result, COMMIT--> succeeded --life ends--> tombstone
//	   ^                 |-----Reject, COMMIT-------> rejected  --life ends--> tombstone
//	   '--any error------'
//
// The claim is an insert under a unique key, the first statement of the
// transaction, and its row is uncommitted while the function runs: duplicates
// wait for it, a crash takes it back, and no state "in progress" is ever to be
// cleaned up. Final states never change.
//
// # Two forms of record
//
// [Do] and [DoTx] keep a record in Holdfast's table. A [Table] makes the
// caller's own row with its own unique key (refund_no) the lock and the record.
//
// # Calls to the outside world
//
// A function of Do has effects in the database only. An operation that calls a
// provider goes in steps that are committed one by one: see [NewStaged].
//
// # Outcomes
//
// Executed and Replayed are nil errors with [Result].Outcome. In progress
// ([ErrInProgress]), mismatch ([ErrMismatch]), expired ([ErrExpired]) and
// unknown ([ErrUnknown]) are errors, as is a final [Rejection]. Only definite
// outcomes are stored.
//
// What a record keeps and for how long is told in docs/idempotency.md: kinds of
// results and [Codec], lives and [Store.EraseScope], fingerprints over a deploy,
// a lease that becomes the record ([Store.WithLease]), and [Inbox] for messages.
//
// A commit whose answer is lost is resolved by Do itself: it claims again,
// which waits for the transaction in doubt, and finds the record or runs the
// function again. Where the database cannot be asked, ErrUnknown is returned;
// asking later with the same key resolves it.
package idempotency

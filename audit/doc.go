// Package audit reads what people did to locks and operations, and finds rows that were changed.
//
//	report, err := audit.Verify(ctx, db)
//	if errors.Is(err, audit.ErrBroken) { ... }    // the first row that is not as it was written
//	for r, err := range audit.List(ctx, db) { ... } // in the order in which they were written
//
// These write a row, in the same transaction: if the row cannot be written, nothing is changed.
//
//	sqllock.Locker.ForceRelease, fairlock.Locker.ForceRelease, fairlock.Semaphore.ForceRelease
//	operators.Operators.Resolve and Erase, operators.AfterRestore
//	idempotency.Store.EraseScope, limits.Limits.Erase
//	outbox.Outbox.Requeue and Discard
//
// So do the command and the console, which call these.
//
// # The chain
//
// Each row has a number, counted from 1, and a SHA-256 hash over its columns and the hash of the row
// before it. Changing a row, deleting one in the middle or adding one without its hash breaks the
// chain there. Deleting the last rows, or writing the table and computing all later hashes anew,
// does not: keep a head hash ([Report].Heads) where the database's users cannot write, and give it to
// [VerifyOptions].Expect.
//
// The reaper never deletes a row. docs/howto/audit.md describes the columns and the grants.
package audit

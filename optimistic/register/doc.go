// Package register keeps named values that change only by compare-and-swap: a
// setting, a cursor, the configuration of a service.
//
//	all, err := register.New(ctx, db)
//	values := all.For("shop-7") // but with holdfast.Options.SingleOwner
//	limit, err := values.Create(ctx, "refund-limit", []byte("5000"))
//	limit, err = values.CompareAndSwap(ctx, "refund-limit", limit.Revision, []byte("7500"))
//
// # What it promises
//
// Each name is linearizable: its changes happen one after the other, and a Get that
// starts after a change has returned sees that change. A change names the revision
// that was read. If the value has another revision by then, the change fails with
// [ErrConflict] and writes nothing.
//
// # The states of a name
//
//	no value, revision 0 --Create--> value, revision 1
//	value, revision n --CompareAndSwap(n)--> value, revision n+1
//	value, revision n --Delete(n)--> no value, revision n+1
//	no value, revision n --Create--> value, revision n+1
//
// The revision never goes back, also not across a deletion. So a deleted name keeps
// its row without the value (about 50 bytes and the name): use names for things that
// come again, not one name for each message.
//
// A restore of the database to an earlier point takes revisions back, too, and
// operators.AfterRestore does not raise them: drop every revision that was read
// before it, or a change may overwrite another one that its author never saw.
//
// # Limits
//
// A name has 1 to [MaxName] bytes and is compared byte by byte: case, accents and
// trailing blanks count. A value has up to [MaxValue] bytes. The values live in a
// table of Holdfast's own, so the program's migrations must have run.
//
// # Transactions
//
// Create, CompareAndSwap and Delete run in a transaction of their own. The forms
// with Tx join the caller's transaction. When one of these fails with any error but
// [holdfast.ErrInvalid], Holdfast has rolled the transaction back. GetTx leaves the
// transaction alone when there is no value. optimistic.Retry runs the whole
// transaction again after a conflict.
//
// # Errors
//
// [ErrConflict] ([*ConflictError], with both revisions), [ErrNotFound]
// ([*NotFoundError]), [*WriteError] with the driver's error on a write;
// [holdfast.ErrInvalid]: an argument was refused and nothing was sent;
// [holdfast.ErrRetry]: the engine rolled back, or a lock could not be acquired in
// time; [holdfast.ErrUnknown]: the commit may or may not have happened; the error of
// ctx; the driver's.
package register

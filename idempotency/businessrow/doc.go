// Package businessrow executes an operation once, using a row of your own table. The row, under
// its unique key such as refund_no, is the lock and the record.
//
//	refunds, err := businessrow.New[Refund](ctx, db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
//		businessrow.Options{Compare: []string{"cents"}})
//	res, err := refunds.Do(ctx, row, func(ctx context.Context, tx *sql.Tx) error {
//		return moveMoney(ctx, tx, row)
//	})
//
// # What it promises
//
//	absent --INSERT--> claimed --function, COMMIT--> stored, for ever
//	   ^                  |
//	   '-----any error----'
//
// The function runs in the transaction that inserts the row, and of all calls with the key only
// one commits. A duplicate waits for that transaction, and then gets the row with
// [idempotency.Replayed]. A crash or an error removes the row and leaves the key free. A rejection
// is returned and not stored, because no row records it. The function must not end the transaction, by COMMIT or, on MySQL and
// MariaDB, by DDL: the row would stand with a part of what it stands for, and later calls would replay it.
//
// If a row with the same key differs in the columns of Options.Compare, the call fails with
// [idempotency.ErrMismatch]. If another unique key of the table refuses the row, it fails with
// [ErrUniqueViolation].
//
// # Ways to claim
//
// [Table.Do] opens and commits its own transaction. [Table.ClaimTx] claims one row in the caller's
// transaction, and [Table.ClaimAllTx] many, with an [Answer] for each row.
//
// # Limits
//
// [New] refuses a key whose columns may be NULL, fold two values into one, or lack a unique index
// of exactly these columns. Deleting a row frees its key.
package businessrow

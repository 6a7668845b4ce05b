// Package limits (experimental) keeps the sum of what is used below a limit: what may be refunded of an order,
// captured of an authorization, paid out of an account. Amounts are reserved and captured later, or
// taken at once, in the transaction that moves the money. The database decides, so no program, no
// isolation level and no concurrency can use more.
//
//	refunds, err := limits.New(ctx, db, "refunds")
//	shop := refunds.For("shop-7")
//	_, err = shop.Set(ctx, "order-42", 10000) // 100.00
//
//	_, err = shop.Take(ctx, limits.Request{Key: "order-42", ID: "refund-1", Amount: 6000})
//	_, err = shop.Take(ctx, limits.Request{Key: "order-42", ID: "refund-2", Amount: 6000})
//	errors.Is(err, limits.ErrExceeded) // true: 40.00 are left
//
// # Two phases
//
//	            Take
//	  .---------------------.
//	  |                     v
//	new --Reserve--> reserved --Capture--> captured
//	                    |  |
//	                    |  '--Void--> voided
//	                    '--Timeout--> expired
//
// A reservation counts until it ends. Capture uses all of it, or a part and releases the rest. Void
// releases all. A reservation with a Timeout that was not captured in time has expired: it no longer
// counts, and it cannot be captured. The database's clock decides.
//
// A reservation ends once. To capture an amount in several parts, reserve the parts.
//
// # What it promises
//
// captured + reserved <= limit, at every commit. The statement that adds an amount tests on the row,
// under the row's lock, whether the amount fits. Two transactions that each fit and together do not
// fit never both commit. At the end a limit's counters are the sums of its entries.
//
// An id is used once. The same id with the same limit and amount returns what happened to it, with
// [Entry].Replayed, and adds nothing; with another limit or amount it fails with [ErrMismatch]. So
// after [holdfast.ErrUnknown], a crash or a timeout, make the same call again.
//
// Expired reservations need no reaper. A call that does not fit first closes those of its limit that
// have expired, and then tries again.
//
// # Whose row it is
//
// By default a limit is a row of Holdfast's table limits, which Set creates, raises and lowers. With
// [Options].Table it is a row of the program's own table, such as the order with its columns paid and
// refunded. The program then inserts the rows. The reservations are in Holdfast's table limit_entries
// in either case.
//
// # Amounts
//
// An amount is an integer above 0 in the smallest unit of its currency, such as cents. A limit is 0 or
// more. Amounts of different currencies belong to different limits.
//
// # Transactions
//
// Each call runs in a separate transaction. The form with Tx joins the caller's transaction, and locks
// the limit's row until that transaction ends: other calls on the limit wait for the rest of it, so do
// what takes long before.
//
// With a limit in the program's own row ([Options].Table), call it before any INSERT or UPDATE of a row
// that refers to that row by a foreign key, such as a refund to its order. On MySQL and MariaDB InnoDB
// checks the foreign key under a shared lock of the row, which two transactions get beside each other.
// Each then waits for the other's lock, and one of them fails with [holdfast.ErrRetry]: of 40 refunds of
// an order at once the function of Do ran 303 times, and 40 times where the call came first. PostgreSQL's
// check does not conflict with the call, and SQLite has one writer.
//
// A transaction that uses several limits should use them in the same order as others do, or it may
// deadlock ([holdfast.ErrRetry]).
//
// # Errors
//
// The refusals. They add nothing, though they may close reservations that have expired. The caller's
// transaction goes on:
//
//   - [ErrExceeded] ([*ExceededError], with the limit and what is used): the amount does not fit.
//   - [ErrNotFound]: the limit or the id does not exist.
//   - [ErrMismatch] ([*MismatchError]): the id was used with another limit, amount or call.
//   - [ErrExpired], [ErrVoided], [ErrCaptured] ([*EndedError]): the reservation has ended in this way.
//
// The others. With Tx, Holdfast has rolled the transaction back, except after ErrInvalid and
// [holdfast.ErrNoTx]:
//
//   - [holdfast.ErrInvalid]: an argument was refused, and nothing was sent.
//   - [holdfast.ErrRetry]: the engine rolled back, or a lock could not be acquired in time. At
//     REPEATABLE READ and SERIALIZABLE this is how PostgreSQL answers when the row has changed since the
//     transaction's snapshot. A new transaction may succeed.
//   - [holdfast.ErrTxLost]: the caller's transaction had already ended.
//   - [holdfast.ErrUnknown]: the commit may or may not have happened.
//
// # Experimental
//
// Before v1.0 the names of methods and options may change in a minor version, and a migration may add columns. No
// limit is exceeded by such a change.
package limits

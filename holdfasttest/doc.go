// Package holdfasttest is for the tests of programs that use Holdfast. It provides a SQLite
// database in one call, and produces on demand, without a server, the outcomes that are hard to
// reproduce.
//
//	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true}) // the options of the program
//	store, err := idempotency.New(ctx, kit.DB)
//	...
//	kit.LoseCommit(true)               // COMMIT is done, its answer is lost
//	err = service.Refund(ctx, request) // what does the program say and do now?
//
// # What to inject
//
//	replayed       Done(kit, store, op, result)
//	rejected       kit.Reject(store, op, code, message)
//	mismatch       kit.Mismatch(store, op)
//	similar        kit.Similar(store, op, businessID)
//	expired        kit.Expire(store, op, businessID)
//	in progress    kit.InProgress(store, op)
//	unknown        kit.LoseCommit(committed)
//	a lost lease   kit.LoseLease(key), kit.LoseLeaseOf(owner, key)
//
// Records and leases are real rows in the database, so the program's next steps have the same
// consequences as in production. In progress and a lost answer are injected between Holdfast and
// the driver. No injection waits.
//
// # On a server
//
// Packages mysqltest and pgxtest make the same kit on a MySQL, MariaDB or PostgreSQL server, in a
// database or schema of the test's own that is dropped at its end: for SQL that SQLite does not
// understand, and for programs on pgx.Tx, because pgx supports no other engine. A program links the
// drivers of the packages that it imports only.
package holdfasttest

// Package holdfasttest is for the tests of programs that use Holdfast. It provides a SQLite
// database in one call, and produces on demand, without a server, the outcomes that are hard to
// reproduce.
//
//	kit := holdfasttest.SQLite(t) // the options of the program, if it has some
//	store, err := idempotency.New(ctx, kit.DB)
//	...
//	kit.LoseCommit(true)                          // COMMIT is done, its answer is lost
//	err = service.Refund(ctx, kit.Owner, request) // what does the program say and do now?
//
// Kit.Owner is an owner for this test alone: a merchant, a tenant, or another kind that the program has.
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
//	a lost lease   kit.LoseLease(owner, key)
//
// Records and leases are real rows in the database, so the program's next steps have the same
// consequences as in production. In progress and a lost answer are injected between Holdfast and
// the driver. No injection waits.
//
// # Every crash point of a handler
//
// EveryFault runs a handler of the program once for each statement, COMMIT and call outside, and each fault
// there, and names the line that does not survive it:
//
//	holdfasttest.EveryFault(t, holdfasttest.Handler{
//		Setup:     createTables,                   // and resets what is outside
//		Call:      refund,                         // builds the program on the kit, and asks once
//		Invariant: exactlyOneRefundAndOnePayment, // counts
//	})
//
// Packages mysqltest and pgxtest have an EveryFault with the program's own SQL and driver on a server.
//
// # On a server
//
// Packages mysqltest and pgxtest make the same kit on a MySQL, MariaDB or PostgreSQL server: for SQL that
// SQLite does not understand, and for programs on pgx.Tx, because pgx supports no other engine. With Main
// in TestMain the tests of a package share one schema, side by side, each with its Owner. Twenty small
// tests took 0.3 s so on PostgreSQL, 0.4 s on MySQL and 0.2 s on MariaDB; with a schema each 2.1 s, 3.3 s
// and 0.9 s. A SQLite database is always a test's own, and made in a few milliseconds. A program links
// the drivers of the packages that it imports only.
package holdfasttest

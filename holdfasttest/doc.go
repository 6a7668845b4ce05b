// Package holdfasttest is for the tests of programs that use Holdfast: a SQLite
// database in one call, and the outcomes that are hard to bring about, on demand
// and without a server.
//
//	kit := holdfasttest.SQLite(t)
//	store, err := idempotency.New(ctx, kit.DB, idempotency.Options{SingleTenant: true})
//	...
//	kit.LoseCommit(true)               // COMMIT is done, its answer is lost
//	err = service.Refund(ctx, request) // what does the program say and do now?
//
// # What to inject
//
//	replayed       Done(kit, store, op, result)
//	rejected       kit.Reject(store, op, code, message)
//	mismatch       kit.Mismatch(store, op)
//	expired        kit.Expire(store, op, businessID)
//	in progress    kit.InProgress(store, op)
//	unknown        kit.LoseCommit(committed)
//	a lost lease   kit.LoseLease(key)
//
// Records and leases are real rows in the database, so what the program does next
// has the consequences that it has in production; in progress and a lost answer
// come from between Holdfast and the driver. Nothing of it waits.
//
// A kit is for programs whose transactions are *sql.Tx or *sqlx.Tx. One on
// pgx.Tx needs a PostgreSQL server for its tests, as pgx has no other engine.
package holdfasttest

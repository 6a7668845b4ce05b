// Package holdfast makes a refund, a settlement booking or a job happen
// exactly once, with the database that a program already runs: PostgreSQL,
// MySQL, MariaDB, or SQLite.
//
// This package is the handle that all others share. An adapter opens it on
// the pool at hand and fixes the type of transaction that every function of
// the program receives:
//
//	d, err := holdfastsql.Open(ctx, pool)  // *sql.DB:       *holdfast.DB[*sql.Tx]
//	d, err := holdfastsqlx.Open(ctx, pool) // *sqlx.DB:      *holdfast.DB[*sqlx.Tx]
//	d, err := holdfastpgx.Open(ctx, pool)  // *pgxpool.Pool: *holdfast.DB[pgx.Tx]
//
// Because the type is fixed, a pool passed where a transaction is needed does
// not compile, and a program links only its own driver.
//
// # Transactions
//
// A function named X manages its own transaction; XTx joins the caller's and
// lives or dies with it. [DB.InTx] runs a function in a transaction and runs
// the whole of it again when the engine asked for that (a deadlock, a
// serialization failure, a lock wait that was bounded), so the function must
// have effects in the database only.
//
// # Three outcomes
//
// A commit is done, not done, or unknown. A connection that dies while COMMIT
// is under way leaves it unknown: [ErrUnknown]. Everything but a clean success
// and an allow-listed answer of the server is unknown; a driver's "safe to
// retry" is not believed.
//
// # A transaction that is gone
//
// After a deadlock, MySQL and MariaDB have rolled the transaction back and
// would commit the next statement by itself; SQLite does so after a cancelled
// statement. A transaction that Holdfast opened is fenced: such a statement
// never stands, and the transaction ends with [ErrTxLost].
package holdfast

// Package holdfast makes a refund, a settlement booking or a job happen exactly once, with the
// database that a program already runs: PostgreSQL, MySQL, MariaDB, or SQLite.
//
// [DB] is the handle that all other packages take. An adapter opens it on the program's pool
// and fixes the type of its transactions:
//
//	holdfastsql.Open(ctx, pool)  // *sql.DB:       *holdfast.DB[*sql.Tx]
//	holdfastsqlx.Open(ctx, pool) // *sqlx.DB:      *holdfast.DB[*sqlx.Tx]
//	holdfastpgx.Open(ctx, pool)  // *pgxpool.Pool: *holdfast.DB[pgx.Tx]
//
// A pool passed where a transaction is needed does not compile, and a program links only its
// own driver.
//
// # Transactions
//
// A function X manages its own transaction. XTx joins the caller's transaction, and commits or
// rolls back with it. [DB.InTx] runs a function in a transaction, and runs it again after a
// deadlock, a serialization failure or a lock timeout, so the function must have effects in
// the database only.
//
// # Three outcomes
//
// A commit is done, not done, or unknown. A clean success is done. An error of the server with
// a code from an allow-list of rollback codes is not done. Every other error is unknown
// ([ErrUnknown]), such as a connection that dies during COMMIT, regardless of what the driver
// says about retrying.
//
// # A lost transaction
//
// After a deadlock, MySQL and MariaDB have rolled the transaction back, and they commit the
// next statement on its own. SQLite does so after a cancelled statement. In a transaction that
// Holdfast opened, such a statement is rolled back, and the transaction ends with [ErrTxLost].
package holdfast

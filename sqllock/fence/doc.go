// Package fence puts the fence of a lease into the table: triggers refuse each write, from any
// client in any language, whose token is not that of the lock's live term.
//
//	orders, err := fence.New(ctx, db, fence.Spec{Table: "orders", Token: "fence", Key: "order/{id}", Owner: "{merchant}"})
//	err = orders.Enforce(ctx) // or put orders.EnforceSQL() into a migration
//
// A holder then writes its token with each row:
//
//	UPDATE orders SET state = 'paid', fence = $token WHERE id = 42
//
// # What the triggers refuse
//
// A write passes if the row of its lock in Holdfast's table has the token and is held, which is what
// Guard tests. The triggers lock that row in share mode, so a later term is granted before the
// test, which then fails, or after the commit. So a holder that was stopped past its lease, and
// writes after it wakes, is refused by the database.
//
//	INSERT  the new row's token must be that of the live term
//	UPDATE  so must the new one, which is also not less than the old one; a row stays with its lock
//	DELETE  so must that of the row as it was: write the token first, then delete
//
// A lock has no live term before its first grant, and after a release or a force-release until
// the next grant. It has none if it has no row, because package reaper has deleted it. A lease that
// has expired is live until the next grant, as for Guard.
//
// # What a client must do
//
// Write the token in each UPDATE. A statement that leaves the column unchanged passes while the
// term that wrote the row last is live, also if another client sends it. For a DELETE, and for such a
// statement, compare the token as well: WHERE id = 42 AND fence = $token. Compute only from rows that were
// read after the grant, in a transaction that began after it. The triggers see what is written,
// not what was read before: [sqllock.Locker.Guard] also refuses a transaction whose snapshot is
// older than the term.
//
// Tokens rise for each key. Those of two keys may be equal, so a token does not say which lock its
// holder has.
//
// # Which locks
//
// Leases, and what is built on them: elections, AcquireAll, re-entry, and operations with
// WithLease. Not fair locks and semaphores: their tokens are drawn when a ticket enters the queue, so the
// last one is not that of the holder, and several may be live. Use Guard for these.
//
// # Which databases
//
// PostgreSQL, MySQL, MariaDB and SQLite. Where other nodes accept writes too (Galera, a group with
// several primaries), a lock does not reach them, and Enforce fails unless Options.SingleWriter
// says that one node gets all writes. TiDB and Vitess have no triggers.
//
// # What the triggers do not see
//
// TRUNCATE; DROP and the other DDL. On PostgreSQL: sessions with session_replication_role =
// replica, which only superusers may set, and so the workers of logical replication; ALTER TABLE
// … DISABLE TRIGGER by the table's owner. On MySQL and MariaDB: the cascades of foreign keys, and
// the writes of a session that has a temporary table of the name of Holdfast's locks, for which it
// needs the privilege CREATE TEMPORARY TABLES on that database. On SQLite: rows that REPLACE
// deletes, unless PRAGMA recursive_triggers is on (the row that it inserts is tested), and
// connections whose C API has turned triggers off.
//
// All other writes are seen: COPY, LOAD DATA, MERGE, upserts, REPLACE, and those of superusers. On
// PostgreSQL a row that moves to another partition counts as deleted. [Table.CheckEnforced] finds
// triggers that were dropped, disabled or changed. MySQL garbles a column name that has a
// backtick in its catalog, so Enforce fails for it.
package fence

// Package migrations holds the SQL of Holdfast's tables, for each engine and for the prefix and
// schema of your choice. It links no database driver.
//
// # Applying
//
// [Up] applies the migrations with golang-migrate on the pool that you have, on any of the
// engines:
//
//	err := migrations.Up(ctx, pool)
//
// Any number of processes may run it, at every start and at the same time. It only reads when
// no migration is missing. The table holdfast_migrations keeps the version, so your own
// migrations are unaffected. For a native pgx pool, wrap it:
//
//	db := stdlib.OpenDBFromPool(pool)
//	defer db.Close() // returns its connections; the pool stays open
//	err := migrations.Up(ctx, db)
//
// The command does the same:
//
//	HOLDFAST_DSN=postgres://user:pw@host/db holdfast migrate up
//
// # Copying
//
// To use a migration tool of your own, copy the output of
//
//	holdfast migrate print --engine postgres
//
// into it, or give it [FS]. Each statement may run again and needs no transaction around it.
// Holdfast itself reads only the table holdfast_schema, so any tool may apply the SQL.
//
// # Grants
//
// [PrintGrants], and the command, print what the account of each role needs, and no more:
//
//	holdfast migrate grants --engine postgres -schema app --role app --to payments
//
// The roles are app, reaper, operator, reader and migrator: see docs/howto/privileges.md. holdfast doctor
// --role compares an account with them.
//
// [PrintRowSecurity], and holdfast migrate row-security, print policies of PostgreSQL by which an account
// has the rows of one owner: an option.
//
// SQLite has no users: every process that migrates or runs needs write access to the file and
// its directory.
//
// The SELECT on holdfast_migrations is for a program that calls Up at its start.
//
// # Functions
//
// [FunctionsUp] creates the SQL functions by which clients in other languages take part, on
// PostgreSQL, MySQL and MariaDB. They are no part of the migrations above. On MySQL and MariaDB the
// role that creates them also needs CREATE ROUTINE, ALTER ROUTINE and EXECUTE, and the functions run
// with its rights. A client needs EXECUTE alone: see [PrintFunctionGrants], and docs/reference/protocol.md.
package migrations

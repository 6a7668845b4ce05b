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
// A program that uses Holdfast reads and writes rows. The role that runs migrations also
// creates and drops tables. PostgreSQL:
//
//	GRANT USAGE ON SCHEMA app TO runtime;
//	GRANT SELECT ON app.holdfast_schema, app.holdfast_migrations TO runtime;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.holdfast_records TO runtime; -- and the other tables
//	GRANT USAGE, CREATE ON SCHEMA app TO migrator; -- owns the tables
//
// MySQL and MariaDB:
//
//	GRANT SELECT ON app.holdfast_schema TO runtime;
//	GRANT SELECT ON app.holdfast_migrations TO runtime;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.holdfast_records TO runtime; -- and the other tables
//	GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP ON app.* TO migrator;
//
// SQLite has no users: every process that migrates or runs needs write access to the file and
// its directory.
//
// Only a program that calls Up at its start needs the SELECT on holdfast_migrations.
//
// # Functions
//
// [FunctionsUp] creates the SQL functions by which clients in other languages take part, on
// PostgreSQL, MySQL and MariaDB. They are no part of the migrations above. On MySQL and MariaDB the
// role that creates them also needs CREATE ROUTINE, ALTER ROUTINE and EXECUTE, and the functions run
// with its rights. A client needs EXECUTE alone: see [PrintFunctionGrants], and docs/protocol.md.
package migrations

// Package migrations holds the SQL of Holdfast's tables, for each engine and
// for the prefix and schema of your choice. It links no database driver.
//
// # Applying
//
// [Up] applies them through golang-migrate on the pool that you have, whichever
// engine it is of:
//
//	err := migrations.Up(ctx, pool)
//
// It may run at every start of every process, several at once: when there is
// nothing to do it only reads. The version is kept in the table
// holdfast_migrations, beside your own migrations. A native pool of pgx is lent:
//
//	db := stdlib.OpenDBFromPool(pool)
//	defer db.Close() // gives its connections back; the pool stays open
//	err := migrations.Up(ctx, db)
//
// The command does the same:
//
//	HOLDFAST_DSN=postgres://user:pw@host/db holdfast migrate up
//
// # Copying
//
// Into a tool of your own copy the output of
//
//	holdfast migrate print --engine postgres
//
// or give it [FS]. Each statement may run again, and wants no transaction
// around it. Holdfast itself looks only at the table holdfast_schema, so it
// does not matter who applied the SQL.
//
// # Grants
//
// A program that uses Holdfast reads and writes rows; whoever migrates also
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
// SQLite has no users: who migrates or runs needs to write the file and its folder.
//
// The SELECT on holdfast_migrations is needed only by a program that calls Up
// at its start.
package migrations

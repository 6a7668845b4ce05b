package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// engine is how one engine keeps two migrations apart.
type engine struct {
	// transaction: a file and its version are one transaction.
	transaction bool
	// split: the driver takes one statement at a time.
	split bool
	// lock does not wait: database.ErrLocked is tried again.
	lock   func(d *driver) error
	unlock func(ctx context.Context, d *driver) error
}

var engines = map[string]engine{
	"postgres": {transaction: true, lock: lockPostgres, unlock: end},
	"mysql":    {split: true, lock: lockMySQL, unlock: unlockMySQL},
	"mariadb":  {split: true, lock: lockMySQL, unlock: unlockMySQL},
	"sqlite":   {transaction: true, lock: lockSQLite, unlock: unlockSQLite},
}

// The lock is the transaction's, not the session's, so that it goes through a
// transaction pooler. lock_timeout keeps a statement that waits for a table
// from holding up the foreground behind it; the wait is tried again.
func lockPostgres(d *driver) error {
	var db, schema sql.NullString
	err := d.conn.QueryRowContext(d.ctx, `SELECT current_database(), current_schema()`).Scan(&db, &schema)
	if err != nil {
		return err
	}
	if d.layout.schema != "" {
		schema.String = d.layout.schema
	}
	id, err := database.GenerateAdvisoryLockId(db.String, schema.String, d.layout.prefix+"migrations")
	if err != nil {
		return err
	}
	var got bool
	if err = d.exec(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`); err == nil {
		err = d.exec(`SET LOCAL lock_timeout = '2s'`)
	}
	if err == nil {
		err = d.conn.QueryRowContext(d.ctx, `SELECT pg_try_advisory_xact_lock(`+id+`)`).Scan(&got)
	}
	if err == nil && !got {
		err = database.ErrLocked
	}
	return d.orUnlock(err)
}

// BEGIN IMMEDIATE takes the only write lock, across processes. Within the
// engine's own wait for it the context counts for nothing, so we wait ourselves.
func lockSQLite(d *driver) error {
	var timeout int
	if err := d.conn.QueryRowContext(d.ctx, `PRAGMA busy_timeout`).Scan(&timeout); err != nil {
		return err
	}
	d.after = fmt.Sprintf(`PRAGMA busy_timeout = %d`, timeout)
	err := d.exec(`PRAGMA busy_timeout = 0`)
	if err == nil {
		err = d.exec(`BEGIN IMMEDIATE`)
	}
	return d.orUnlock(err)
}

func unlockSQLite(ctx context.Context, d *driver) error {
	err := end(ctx, d)
	if _, e := d.conn.ExecContext(ctx, d.after); e != nil {
		d.spoiled = true
	}
	return err
}

// end commits or rolls back. A COMMIT that was refused (SQLite, with readers in
// the way) leaves the transaction open, and so does a BEGIN whose context ended.
func end(ctx context.Context, d *driver) error {
	err := d.failed
	if err == nil {
		err = d.ctx.Err()
	}
	if err == nil {
		_, err = d.conn.ExecContext(ctx, `COMMIT`)
	}
	if err == nil {
		return nil
	}
	if _, e := d.conn.ExecContext(ctx, `ROLLBACK`); e != nil && d.layout.dialect.Classify(e) != dialect.Gone {
		d.spoiled = true // ending the connection rolls back, too
	}
	return err
}

// DDL commits by itself here, so the lock is the session's. The bound on waits
// for tables is a session setting: the connection ends with its use.
func lockMySQL(d *driver) error {
	var db sql.NullString
	if err := d.conn.QueryRowContext(d.ctx, `SELECT DATABASE()`).Scan(&db); err != nil {
		return err
	}
	if d.layout.schema != "" {
		db.String = d.layout.schema
	}
	if db.String == "" {
		return errors.New("no database is selected: name it in the DSN, or with WithSchema")
	}
	id, err := database.GenerateAdvisoryLockId(db.String + ":" + d.layout.prefix + "migrations")
	if err != nil {
		return err
	}
	d.spoiled = true
	if err := d.exec(`SET SESSION lock_wait_timeout = 2`); err != nil {
		return err
	}
	var got sql.NullInt64
	err = d.conn.QueryRowContext(d.ctx, `SELECT GET_LOCK('`+id+`', 0)`).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = database.ErrLocked
	}
	d.after = `DO RELEASE_LOCK('` + id + `')`
	return err
}

// unlockMySQL need not succeed: the lock goes with the connection.
func unlockMySQL(ctx context.Context, d *driver) error {
	_, _ = d.conn.ExecContext(ctx, d.after)
	return nil
}

package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// engine is how one engine prevents concurrent migrations.
type engine struct {
	// transaction means that a file and its version are one transaction.
	transaction bool
	// files is the folder of the SQL.
	files string
	// options end a CREATE TABLE: what it is does not depend on the session's defaults.
	options string
	// place reads in which schema the tables are and, if tables have owners, who the user is. nil: what
	// is there cannot be read, and is not checked.
	place func(d *driver) error
	// kinds are what a plain table is called in its shape.
	kinds []string
	// shards returns the statements that lead a connection to one shard after the other, or none:
	// all shards have the same tables.
	shards func(ctx context.Context, conn *sql.Conn) ([]string, error)
	// level makes what has to be equal on all shards so.
	level func(ctx context.Context, conn *sql.Conn, l *layout, shards []string) error
	// lock does not wait. After database.ErrLocked the caller tries again.
	lock   func(d *driver) error
	unlock func(ctx context.Context, d *driver) error
}

var engines = map[string]engine{
	"postgres": {files: "postgres", transaction: true, place: placePostgres, kinds: []string{"table"}, lock: lockPostgres, unlock: end},
	"mysql":    likeMySQL,
	"mariadb":  likeMySQL,
	"tidb":     likeMySQL,
	"vitess":   onShards(likeMySQL),
	"sqlite":   {files: "sqlite", transaction: true, place: placeSQLite, kinds: []string{"table"}, lock: lockSQLite, unlock: unlockSQLite},
}

var likeMySQL = engine{files: "mysql", options: " ENGINE=InnoDB", place: placeMySQL, kinds: []string{"InnoDB"}, lock: lockMySQL, unlock: unlockMySQL}

// placePostgres fixes the schema for all statements: the path of the session may change.
func placePostgres(d *driver) error {
	var schema sql.NullString
	if err := d.conn.QueryRowContext(d.ctx, `SELECT pg_catalog.current_schema(), current_user`).Scan(&schema, &d.user); err != nil {
		return err
	}
	if d.layout.schema == "" {
		d.layout.schema = schema.String
	}
	if d.schema = d.layout.schema; d.schema == "" {
		return errors.New("search_path names no schema that exists: name one in it, or in Options.Schema")
	}
	return nil
}

func placeMySQL(d *driver) error {
	if d.schema = d.layout.schema; d.schema != "" {
		return nil
	}
	var schema sql.NullString
	err := d.conn.QueryRowContext(d.ctx, `SELECT DATABASE()`).Scan(&schema)
	if d.schema = schema.String; err == nil && d.schema == "" {
		err = errors.New("no database is selected: name it in the DSN, or in Options.Schema")
	}
	return err
}

func placeSQLite(d *driver) error {
	d.schema = d.layout.schema
	return nil
}

// lockPostgres locks for the transaction, not for the session, so that the lock works through a
// transaction pooler. A statement that waits for a table makes all later statements on it wait,
// so lock_timeout bounds that wait. The caller tries again.
func lockPostgres(d *driver) error {
	var db string
	err := d.conn.QueryRowContext(d.ctx, `SELECT pg_catalog.current_database()`).Scan(&db)
	if err != nil {
		return err
	}
	id, err := database.GenerateAdvisoryLockId(db, d.schema, d.layout.prefix+versions)
	if err != nil {
		return err
	}
	var got bool
	if err = d.exec(`BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`); err == nil {
		err = d.exec(`SET LOCAL lock_timeout = '2s'`)
	}
	if err == nil { // no function or operator of a schema in which others may create is meant
		err = d.exec(`SET LOCAL search_path = pg_catalog, pg_temp`)
	}
	if err == nil {
		err = d.conn.QueryRowContext(d.ctx, `SELECT pg_try_advisory_xact_lock(`+id+`)`).Scan(&got)
	}
	if err == nil && !got {
		err = database.ErrLocked
	}
	return d.orUnlock(err)
}

// lockSQLite takes the only write lock, across processes, with BEGIN IMMEDIATE. The engine's
// own wait ignores the context, so lockSQLite does not wait and the caller tries again.
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

// end commits or rolls back. A refused COMMIT (SQLite, while others read) leaves the
// transaction open, and so does a BEGIN whose context ended.
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
		d.spoiled = true // closing the connection rolls back, too
	}
	return err
}

// lockAnswer is the maximum time to wait for the answer to GET_LOCK, also after the context has ended.
const lockAnswer = 10 * time.Second

// lockMySQL locks for the session, because DDL commits implicitly. The bound on waits for
// tables is a session setting, so the connection is closed after use.
func lockMySQL(d *driver) error {
	id, err := database.GenerateAdvisoryLockId(d.schema + ":" + d.layout.prefix + versions)
	if err != nil {
		return err
	}
	d.spoiled = true
	if err := d.exec(`SET SESSION lock_wait_timeout = 2`); err != nil {
		return err
	}
	var got sql.NullInt64
	// Vitess keeps the lock of a client that has gone before the answer, so an ended context waits
	// for it. GET_LOCK itself does not wait.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), lockAnswer)
	defer cancel()
	err = d.conn.QueryRowContext(ctx, `SELECT GET_LOCK('`+id+`', 0)`).Scan(&got)
	if err == nil && got.Int64 != 1 {
		err = database.ErrLocked
	}
	d.after = `DO RELEASE_LOCK('` + id + `')`
	return err
}

// unlockMySQL may fail: the lock ends with the connection.
func unlockMySQL(ctx context.Context, d *driver) error {
	_, _ = d.conn.ExecContext(ctx, d.after)
	return nil
}

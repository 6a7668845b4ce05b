package migrations

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// driver is golang-migrate's database driver on one connection.
//
// Holdfast does not use golang-migrate's own drivers. The pgx driver returns its connection
// only by closing the pool. The MySQL driver needs multiStatements. The SQLite driver locks
// within one process only. None takes a context, and each links a database driver that the
// program may not want.
type driver struct {
	ctx    context.Context // golang-migrate's methods take no context
	layout *layout
	engine engine
	conn   *sql.Conn
	table  string // golang-migrate's version table
	schema string // where the tables are
	user   string // who migrates, on an engine whose tables have owners
	down   bool   // migrating down
	locked bool   // by Lock
	failed error  // the first error since Lock
	after  string // restores what the engine's lock changed
	// spoiled means that the connection must not return to the pool.
	spoiled bool
}

var _ database.Driver = (*driver)(nil)

func (d *driver) exec(query string) error {
	_, err := d.conn.ExecContext(d.ctx, query)
	return err
}

// Lock starts one file's migration. No other process migrates until Unlock.
func (d *driver) Lock() error {
	d.failed = nil
	if err := d.engine.lock(d); err != nil {
		return err
	}
	err := d.exec(`CREATE TABLE IF NOT EXISTS ` + d.table + ` (version BIGINT NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)` + d.engine.options)
	d.locked = err == nil
	if err == nil {
		err = d.trustVersions()
	}
	return d.orUnlock(err)
}

// orUnlock unlocks if err is not nil.
func (d *driver) orUnlock(err error) error {
	if d.failed = err; err == nil {
		return nil
	}
	return errors.Join(err, d.Unlock())
}

// Unlock ends one file's migration. Where DDL is transactional, it commits or rolls back the
// whole file.
func (d *driver) Unlock() error {
	d.locked = false
	ctx, cancel := core.Cleanup(d.ctx)
	defer cancel()
	err := d.engine.unlock(ctx, d)
	if d.failed != nil {
		return nil // the caller has that error already
	}
	return err
}

// SetVersion stores the version. Before a file (dirty) it keeps a failure for Run, because
// golang-migrate's reader of the file waits for Run to read it.
func (d *driver) SetVersion(version int, dirty bool) error {
	statements := []string{`DELETE FROM ` + d.table + ` WHERE version >= -1`} // sql_safe_updates wants a key
	if version >= 0 || dirty {
		// A literal: prepared statements do not work through every pooler.
		statements = append(statements, fmt.Sprintf(`INSERT INTO %s (version, dirty) VALUES (%d, %t)`, d.table, version, dirty))
	}
	if !d.engine.transaction {
		statements = append(append([]string{`START TRANSACTION`}, statements...), `COMMIT`)
	}
	for _, s := range statements {
		if err := d.exec(s); err != nil {
			d.failed = err
			break
		}
	}
	if dirty {
		return nil
	}
	return d.failed
}

// Version implements database.Driver. An interrupted file counts as not begun: every statement
// may run again, and under the lock no other process runs it. The stored version stays dirty
// until the file is complete.
func (d *driver) Version() (version int, dirty bool, err error) {
	version, dirty, err = d.stored()
	if err != nil || !dirty || !d.locked {
		return version, dirty, err
	}
	switch {
	case d.down:
		version = min(max(version, 0)+1, Version)
	case version <= 1:
		version = database.NilVersion
	default:
		version--
	}
	return version, false, nil
}

// stored reads the version and needs no lock. A missing table means no version.
func (d *driver) stored() (version int, dirty bool, err error) {
	if err := d.trustVersions(); err != nil {
		return 0, false, err
	}
	err = d.conn.QueryRowContext(d.ctx, `SELECT version, dirty FROM `+d.table).Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) || d.layout.dialect.Classify(err) == dialect.NoTable {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

// Run runs one file.
func (d *driver) Run(file io.Reader) error {
	text, err := io.ReadAll(file)
	if d.failed != nil {
		return d.failed
	}
	if err == nil {
		err = d.trust()
	}
	created := false // since the tables were checked
	for _, s := range split(string(text)) {
		if strings.HasPrefix(s, "CREATE ") {
			created = true
		} else if created && err == nil { // another user may have made the table since
			created, err = false, d.trustPlain()
		}
		if err == nil {
			err = d.exec(s)
		}
	}
	d.failed = err
	return err
}

// forget drops golang-migrate's table, unless another process has migrated up since.
func (d *driver) forget() error {
	if err := d.Lock(); err != nil {
		return err
	}
	version, dirty, err := d.stored()
	if err == nil && !dirty && version == database.NilVersion {
		err = d.exec(`DROP TABLE ` + d.table)
	}
	d.failed = err
	return errors.Join(err, d.Unlock())
}

// release returns the connection to the pool, or closes it if it is spoiled.
func (d *driver) release() {
	if d.spoiled {
		_ = d.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	_ = d.conn.Close()
}

// Open implements database.Driver. It is never called.
func (d *driver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }

// Drop implements database.Driver. It is never called.
func (d *driver) Drop() error { return errors.ErrUnsupported }

// Close does nothing: the caller owns the pool.
func (d *driver) Close() error { return nil }

package migrations

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// driver is golang-migrate's view of one connection.
//
// golang-migrate's own database drivers are not used: that of pgx gives its
// connection back only by closing the pool, that of MySQL needs
// multiStatements, that of SQLite locks within one process only, none takes a
// context, and each links a driver which the program may not want.
type driver struct {
	ctx    context.Context // golang-migrate's methods take none
	layout *layout
	engine engine
	conn   *sql.Conn
	table  string // golang-migrate's own
	down   bool   // the way we go
	locked bool   // by Lock
	failed error  // since Lock
	after  string // puts back what the engine's lock changed
	// spoiled: the connection must not go back to the pool.
	spoiled bool
}

var _ database.Driver = (*driver)(nil)

func (d *driver) exec(query string) error {
	_, err := d.conn.ExecContext(d.ctx, query)
	return err
}

// Lock begins one file's migration: nobody else is at it until Unlock.
func (d *driver) Lock() error {
	d.failed = nil
	if err := d.engine.lock(d); err != nil {
		return err
	}
	err := d.exec(`CREATE TABLE IF NOT EXISTS ` + d.table + ` (version BIGINT NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)`)
	d.locked = err == nil
	return d.orUnlock(err)
}

// orUnlock undoes a lock that came with an error.
func (d *driver) orUnlock(err error) error {
	if d.failed = err; err == nil {
		return nil
	}
	return errors.Join(err, d.Unlock())
}

// Unlock ends it: where DDL is transactional all of it stands or none.
func (d *driver) Unlock() error {
	d.locked = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), cleanup)
	defer cancel()
	err := d.engine.unlock(ctx, d)
	if d.failed != nil {
		return nil // its caller has that error already
	}
	return err
}

// SetVersion stores how far we are. Before a file (dirty) a failure is kept for
// Run, because golang-migrate's reader of the file waits for Run to read it.
func (d *driver) SetVersion(version int, dirty bool) error {
	statements := []string{`DELETE FROM ` + d.table}
	if version >= 0 || dirty {
		// A literal, as prepared statements do not survive every pooler.
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

// Version is golang-migrate's. A file that was cut off counts as not begun:
// every statement may run again, and under the lock nobody is running it.
// The stored version stays dirty until the file is through.
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

// stored reads the version and needs no lock; no table is no version.
func (d *driver) stored() (version int, dirty bool, err error) {
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
	statements := []string{string(text)}
	if d.engine.split {
		statements = split(string(text))
	}
	for i := 0; i < len(statements) && err == nil; i++ {
		err = d.exec(statements[i])
	}
	d.failed = err
	return err
}

// forget drops golang-migrate's table, unless somebody has gone up meanwhile.
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

// release gives the connection back, or ends it.
func (d *driver) release() {
	if d.spoiled {
		_ = d.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	_ = d.conn.Close()
}

// Open is golang-migrate's; nobody calls it.
func (d *driver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }

// Drop is golang-migrate's; nobody calls it.
func (d *driver) Drop() error { return errors.ErrUnsupported }

// Close leaves the pool to its owner.
func (d *driver) Close() error { return nil }

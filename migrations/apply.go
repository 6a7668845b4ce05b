package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
)

const (
	// maxWait bounds the wait for another process's migration and for locks on the tables, over
	// all tries.
	maxWait = time.Minute
)

// Up applies the missing migrations, on the engine that pool connects to. Any number of
// processes may call it at the same moment, at every start: they take turns, and each waits for
// at most a minute. Up leaves tables of a newer build unchanged, and leaves the pool open.
//
// On PostgreSQL and SQLite each file is one transaction. On MySQL and MariaDB DDL commits
// implicitly, so a process that dies leaves a file half done. The next Up or Down repeats that
// file. Up does not need multiStatements on MySQL and MariaDB. It uses one connection of the
// pool and closes that connection at the end.
func Up(ctx context.Context, pool *sql.DB, opts ...holdfast.Options) error {
	return retry(ctx, pool, opts, func(d *driver, src source.Driver) error {
		have, dirty, err := d.Version()
		if err != nil || have >= Version && !dirty {
			return err
		}
		return d.steps(src, 1)
	}, true)
}

// Down drops Holdfast's tables, with the functions of FunctionsUp and golang-migrate's own table. This deletes every
// record, so keys that were used can be used again. It is for tests and for removal.
func Down(ctx context.Context, pool *sql.DB, opts ...holdfast.Options) error {
	return retry(ctx, pool, opts, func(d *driver, src source.Driver) error {
		have, dirty, err := d.Version()
		switch {
		case err != nil || have == database.NilVersion && !dirty:
			return err
		case have > Version:
			return fmt.Errorf("the tables are at version %d, of a newer build than this one (%d): go down with that build", have, Version)
		}
		if err := d.dropFunctions(); err != nil {
			return err
		}
		d.down = true
		if err := d.steps(src, -1); err != nil {
			return err
		}
		return d.forget()
	}, false)
}

// Applied returns the version of the last applied migration, or 0 if there is none. dirty means
// that a migration is running or was interrupted. Up and Down repeat an interrupted migration.
func Applied(ctx context.Context, pool *sql.DB, opts ...holdfast.Options) (version int, dirty bool, err error) {
	err = retry(ctx, pool, opts, func(d *driver, _ source.Driver) error {
		version, dirty, err = d.Version()
		return err
	}, false)
	return max(version, 0), dirty, err
}

// steps runs one file at a time, each under its own lock. So a failure leaves no prefetched
// file behind, and the context is checked between files.
func (d *driver) steps(src source.Driver, by int) error {
	m, err := migrate.NewWithInstance("iofs", src, d.layout.dialect.Name, d)
	if err != nil {
		return err
	}
	m.LockTimeout = 2 * maxWait // the driver's Lock has its own, shorter bound
	for {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := m.Steps(by); errors.Is(err, fs.ErrNotExist) {
			return nil // there are no more files
		} else if err != nil {
			return err
		}
	}
}

// retry runs f on its own connection, for each shard. It repeats f while other processes are in the
// way. level says that the shards are made alike at the end.
func retry(ctx context.Context, pool *sql.DB, opts []holdfast.Options, f func(*driver, source.Driver) error, level bool) error {
	o, err := one(opts)
	if err != nil {
		return err
	}
	// The tables do not exist yet. Open checks later whether this server may be used.
	opening := dialect.Without(ctx, dialect.RuleTables, dialect.RuleUntested)
	var db *holdfast.DB[*sql.Tx]
	var l *layout
	start, pause := time.Now(), 10*time.Millisecond
	for {
		var err error
		if db == nil {
			db, err = holdfastsql.Open(opening, pool, o)
		}
		if err == nil && l == nil {
			if l, err = newLayout(db.Engine(), o); err != nil {
				return err
			}
			l.multiPrimary = db.Capabilities().MultiPrimary
		}
		if err == nil {
			err = once(ctx, l, pool, o, f, level)
		}
		if err == nil && level {
			err = see(ctx, db)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || time.Since(start) > maxWait || !busy(l, err):
			if l == nil {
				return err
			}
			return fmt.Errorf("migrations: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, 250*time.Millisecond)
	}
}

// see notes the version line of the server: a later one has its Options.UpdateGrace then.
func see(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
	a := access.Of(db)
	if a.Dialect.Admission.Lines == "" {
		return nil
	}
	_, err := a.Dialect.SeenLine(a.Table("servers")).Exec(ctx, a.Pool, db.Product())
	if errors.Is(err, holdfast.ErrDenied) {
		return nil // the tables are there, and another account owns them: the first Open notes it
	}
	return err
}

// busy reports whether err says that another process is in the way. Before the database is
// open, that process is switching a SQLite file to WAL: SQLite calls no busy handler for that.
func busy(l *layout, err error) bool {
	if l == nil {
		return sqlite.Dialect.Classify(err) == dialect.Busy
	}
	class := l.dialect.Classify(err)
	return errors.Is(err, database.ErrLocked) || class == dialect.Busy || class == dialect.Retry
}

func once(ctx context.Context, l *layout, pool *sql.DB, o holdfast.Options, f func(*driver, source.Driver) error, level bool) (err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	d := &driver{ctx: ctx, layout: l, conn: conn, engine: engines[l.dialect.Name]}
	defer d.release()
	if err := d.engine.place(d); err != nil {
		return err
	}
	d.table, o.Schema = l.table(versions), l.schema
	all, err := files(holdfast.Engine(l.dialect.Name), o)
	if err != nil {
		return err
	}
	src, err := iofs.New(all, ".")
	if err != nil {
		return err
	}
	if d.engine.shards == nil {
		return f(d, src)
	}
	shards, err := d.engine.shards(ctx, conn)
	if err != nil {
		return err
	}
	if len(shards) == 0 {
		return f(d, src)
	}
	// The connection has the lock for all shards, and is closed at the end.
	if err := d.engine.lock(d); err != nil {
		return err
	}
	d.engine.lock, d.engine.unlock = noLock, noUnlock
	for _, use := range shards {
		if err := d.exec(use); err != nil {
			return err
		}
		if err := f(d, src); err != nil {
			return err
		}
	}
	if !level {
		return nil
	}
	return d.engine.level(ctx, conn, l, shards)
}

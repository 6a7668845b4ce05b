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

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

const (
	// patience bounds the wait for another process's migration and for locks
	// on the tables, all tries together.
	patience = time.Minute
	// cleanup bounds what outlives the caller's context: rollback and unlock.
	cleanup = 5 * time.Second
)

// Up applies what is missing, on the engine that pool is of. Any number of
// processes may call it at the same moment, at every start: they take turns, for
// a minute at most. Tables of a newer build are left as they are, and the pool open.
//
// On PostgreSQL and SQLite each file is one transaction. On MySQL and MariaDB
// DDL commits by itself, so a process that dies on the way leaves a file half
// done: the next Up or Down repeats it. No multiStatements is needed there; one
// connection of the pool is used and closed at the end.
func Up(ctx context.Context, pool *sql.DB, opts ...Option) error {
	return retry(ctx, pool, opts, func(d *driver, src source.Driver) error {
		have, dirty, err := d.Version()
		if err != nil || have >= Version && !dirty {
			return err
		}
		return d.steps(src, 1)
	})
}

// Down drops Holdfast's tables, golang-migrate's among them, and deletes every
// record, so that keys which were used can be used again. It is for tests and
// for removal.
func Down(ctx context.Context, pool *sql.DB, opts ...Option) error {
	return retry(ctx, pool, opts, func(d *driver, src source.Driver) error {
		have, dirty, err := d.Version()
		switch {
		case err != nil || have == database.NilVersion && !dirty:
			return err
		case have > Version:
			return fmt.Errorf("the tables are at version %d, of a newer build than this one (%d): go down with that build", have, Version)
		}
		d.down = true
		if err := d.steps(src, -1); err != nil {
			return err
		}
		return d.forget()
	})
}

// Applied reads how far the migrations got: 0 is not at all. Dirty means that
// one is under way, or was cut off; Up and Down repeat it.
func Applied(ctx context.Context, pool *sql.DB, opts ...Option) (version int, dirty bool, err error) {
	err = retry(ctx, pool, opts, func(d *driver, _ source.Driver) error {
		version, dirty, err = d.Version()
		return err
	})
	return max(version, 0), dirty, err
}

// steps goes one file at a time, each under its own lock: a failure leaves no
// prefetched file behind, and between two files the context is looked at.
func (d *driver) steps(src source.Driver, by int) error {
	m, err := migrate.NewWithInstance("iofs", src, d.layout.dialect.Name, d)
	if err != nil {
		return err
	}
	m.LockTimeout = 2 * patience // Lock bounds itself
	for {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		if err := m.Steps(by); errors.Is(err, fs.ErrNotExist) {
			return nil // no further file
		} else if err != nil {
			return err
		}
	}
}

// retry gives f a connection of its own, again for as long as others are in the way.
func retry(ctx context.Context, pool *sql.DB, opts []Option, f func(*driver, source.Driver) error) error {
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		return err
	}
	e := db.Engine()
	l, err := newLayout(e, opts)
	if err != nil {
		return err
	}
	files, err := FS(e, opts...)
	if err != nil {
		return err
	}
	src, err := iofs.New(files, ".")
	if err != nil {
		return err
	}
	start, pause := time.Now(), 10*time.Millisecond
	for {
		err := once(ctx, l, pool, src, f)
		busy := errors.Is(err, database.ErrLocked)
		switch l.dialect.Classify(err) {
		case dialect.Busy, dialect.Retry:
			busy = true
		}
		if err == nil {
			return nil
		}
		if !busy || ctx.Err() != nil || time.Since(start) > patience {
			return fmt.Errorf("holdfast: migrating: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, 250*time.Millisecond)
	}
}

func once(ctx context.Context, l *layout, pool *sql.DB, src source.Driver, f func(*driver, source.Driver) error) (err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	d := &driver{ctx: ctx, layout: l, conn: conn, engine: engines[l.dialect.Name], table: l.table("migrations")}
	defer d.release()
	return f(d, src)
}

// Package apply runs the migrations on a pool, through golang-migrate.
//
// golang-migrate's own database drivers are not used: that of pgx gives its
// connection back only by closing the pool, that of MySQL needs
// multiStatements, that of SQLite locks within one process only, none takes a
// context, and each links a driver which the program may not want.
package apply

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
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/migrations/internal/layout"
)

const (
	// patience bounds the wait for another process's migration and for locks
	// on the tables, all tries together.
	patience = time.Minute
	// cleanup bounds what outlives the caller's context: rollback and unlock.
	cleanup = 5 * time.Second
)

// Up applies what is missing. Tables of a newer build are left as they are.
func Up(ctx context.Context, e holdfast.Engine, pool *sql.DB, opts []migrations.Option) error {
	return retry(ctx, e, pool, opts, func(d *driver, src source.Driver) error {
		have, dirty, err := d.Version()
		if err != nil || have >= migrations.Version && !dirty {
			return err
		}
		return d.steps(src, 1)
	})
}

// Down takes everything away, golang-migrate's table included.
func Down(ctx context.Context, e holdfast.Engine, pool *sql.DB, opts []migrations.Option) error {
	return retry(ctx, e, pool, opts, func(d *driver, src source.Driver) error {
		have, dirty, err := d.Version()
		switch {
		case err != nil || have == database.NilVersion && !dirty:
			return err
		case have > migrations.Version:
			return fmt.Errorf("the tables are at version %d, of a newer build than this one (%d): go down with that build", have, migrations.Version)
		}
		d.down = true
		if err := d.steps(src, -1); err != nil {
			return err
		}
		return d.forget()
	})
}

// Version reads how far the migrations got: 0 is not at all. Dirty means that
// one is under way, or was cut off; Up and Down repeat it.
func Version(ctx context.Context, e holdfast.Engine, pool *sql.DB, opts []migrations.Option) (version int, dirty bool, err error) {
	err = retry(ctx, e, pool, opts, func(d *driver, _ source.Driver) error {
		version, dirty, err = d.Version()
		return err
	})
	return max(version, 0), dirty, err
}

// steps goes one file at a time, each under its own lock: a failure leaves no
// prefetched file behind, and between two files the context is looked at.
func (d *driver) steps(src source.Driver, by int) error {
	m, err := migrate.NewWithInstance("iofs", src, d.layout.Dialect.Name, d)
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
func retry(ctx context.Context, e holdfast.Engine, pool *sql.DB, opts []migrations.Option, f func(*driver, source.Driver) error) error {
	l, err := layout.New(e, opts)
	if err != nil {
		return err
	}
	files, err := migrations.FS(e, opts...)
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
		switch l.Dialect.Classify(err) {
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

func once(ctx context.Context, l *layout.Layout, pool *sql.DB, src source.Driver, f func(*driver, source.Driver) error) (err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	d := &driver{ctx: ctx, layout: l, conn: conn, engine: engines[l.Dialect.Name], table: l.Table("migrations")}
	defer d.release()
	return f(d, src)
}

package prove

import (
	"context"
	"database/sql"
	"time"
)

// OnReady sets a function that runs once the tables of the run exist.
func (o Options) OnReady(f func(ctx context.Context, prefix string) error) Options {
	o.ready = f
	return o
}

// Only limits the run to these checks.
func (o Options) Only(checks ...string) Options {
	o.only = checks
	return o
}

// Overlap sets how long the function of a racing call waits for another one to overlap.
func (o Options) Overlap(d time.Duration) Options {
	o.overlap = d
	return o
}

// MakeTables creates the tables of a run in another database.
func MakeTables(ctx context.Context, pool *sql.DB, prefix string) (err error) {
	r := newRun(Options{})
	r.pool, r.prefix = pool, prefix
	if r.db, err = r.openDB(ctx, pool); err != nil {
		return err
	}
	r.bind()
	return r.create(ctx)
}

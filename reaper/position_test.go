package reaper_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// Rows of these tests expire at due. A number of microseconds that is not a multiple of 100 shows an
// engine that keeps only four decimals.
const (
	due    = 1_700_000_000_123_444
	cutoff = due + 12
)

// referenced makes a table with three rows that expire at due and that a foreign key protects.
func referenced(e *conformance.Env[*sql.Tx], name, column, at string) {
	e.Helper()
	e.Must(`CREATE TABLE ` + name + ` (id BIGINT NOT NULL PRIMARY KEY, expires_at ` + column + `)`)
	e.Must(`CREATE INDEX ` + name + `_i ON ` + name + ` (expires_at)`)
	e.Must(`CREATE TABLE ` + name + `_uses (id BIGINT NOT NULL, FOREIGN KEY (id) REFERENCES ` + name + ` (id))`)
	e.Must(fmt.Sprintf(`INSERT INTO %s (id, expires_at) VALUES (1, %s), (2, %s), (3, %s)`, name, at, at, at))
	e.Must(`INSERT INTO ` + name + `_uses VALUES (1), (2), (3)`)
}

// bounded returns a context that ends at a number of reads that no sweep of these tests needs.
func bounded(e *conformance.Env[*sql.Tx]) (context.Context, holdfast.Options) {
	ctx, cancel := context.WithCancel(e.Ctx)
	e.Cleanup(cancel)
	finds := 0
	return ctx, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Name == "sweep.table.find" {
			if finds++; finds == 50 {
				cancel()
			}
		}
	}}}
}

func openReaper(e *conformance.Env[*sql.Tx], dsn string, observed holdfast.Options, tables ...reaper.Table) *reaper.Reaper {
	e.Helper()
	r, err := reaper.New(e.Ctx, e.Handle.Open(e.T, dsn, observed).DB, reaper.Options{Batch: 2, BatchTime: time.Minute, Pace: 0.001, Tables: tables})
	e.Check(err)
	r.SetClock(func(context.Context, func(context.Context) (int64, error)) (int64, error) { return cutoff, nil })
	e.Check(r.AcceptClock(e.Ctx))
	return r
}

// checking returns a DSN whose connections check foreign keys.
func checking(e *conformance.Env[*sql.Tx]) string {
	if e.Engine == dbtest.SQLite {
		return dbtest.With(e.DSN, "_pragma=foreign_keys(1)")
	}
	return e.DSN
}

// TestNoProgressEndsATable has an engine on which each row is after itself. The sweep must not read the
// same rows for ever, and the next table gets its turn.
func TestNoProgressEndsATable(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		var specs []reaper.Table
		for _, name := range []string{"stuck", "other"} {
			referenced(e, name, "BIGINT", fmt.Sprint(due))
			specs = append(specs, reaper.Table{TableSpec: holdfast.TableSpec{Table: name, Key: []string{"id"}}, Expires: "expires_at", Unit: reaper.Microseconds})
		}
		e.Must(fmt.Sprintf(`INSERT INTO other (id, expires_at) VALUES (4, %d)`, due))
		ctx, observed := bounded(e)
		r := openReaper(e, checking(e), observed, specs...)
		r.RoundPosition()
		report, err := r.Sweep(ctx)
		var own *reaper.TableError
		if !errors.As(err, &own) || own.Table != "stuck" || ctx.Err() != nil {
			e.Errorf("got %v, want an error in the first table", err)
		}
		if !slices.ContainsFunc(report.Tasks, func(done reaper.TaskReport) bool { return done.Task == "other" && done.Rows == 1 }) {
			e.Errorf("the other table had no turn: %+v", report)
		}
	})
}

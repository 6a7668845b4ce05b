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

// TestTimesToTheMicrosecond has full batches of rows that share their time and are passed over, a row that
// expires at the cutoff, and one that expires a microsecond later. On MySQL and MariaDB the driver sends
// the parameters, or writes them into the text.
func TestTimesToTheMicrosecond(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		text := func(n int) string { return time.UnixMicro(int64(n)).UTC().Format("2006-01-02 15:04:05.000000") }
		quoted := func(n int) string { return "'" + text(n) + "'" }
		columns := map[string]func(int) string{"BIGINT": func(n int) string { return fmt.Sprint(n) }}
		units := map[string]reaper.Unit{"BIGINT": reaper.Microseconds, "timestamptz": reaper.Timestamp, "TIMESTAMP(6) NULL": reaper.Timestamp, "timestamp": reaper.TimestampUTC, "DATETIME(6)": reaper.TimestampUTC}
		dsns := []string{checking(e)}
		switch e.Engine.Like() {
		case dbtest.Postgres:
			columns["timestamptz"], columns["timestamp"] = func(n int) string { return "'" + text(n) + "+00'" }, quoted
		case dbtest.MySQL:
			columns["TIMESTAMP(6) NULL"] = func(n int) string { return fmt.Sprintf(`FROM_UNIXTIME(%d.%06d)`, n/1_000_000, n%1_000_000) }
			columns["DATETIME(6)"] = quoted
			dsns = []string{conformance.Param(e.DSN, "interpolateParams", "false"), conformance.Param(e.DSN, "interpolateParams", "true")}
		}
		n := 0
		for column, at := range columns {
			for i, dsn := range dsns {
				n++
				name := fmt.Sprintf("micros_%d", n)
				referenced(e, name, column, at(due))
				e.Must(fmt.Sprintf(`INSERT INTO %s (id, expires_at) VALUES (4, %s), (5, %s)`, name, at(cutoff), at(cutoff+1)))
				ctx, observed := bounded(e)
				r := openReaper(e, dsn, observed, reaper.Table{TableSpec: holdfast.TableSpec{Table: name, Key: []string{"id"}}, Expires: "expires_at", Unit: units[column]})
				report, err := r.Sweep(ctx)
				if len(report.Tasks) <= conformance.SweepTasks {
					e.Fatalf("%s, driver %d: %+v, %v", column, i, report, err)
				}
				if done := report.Tasks[conformance.SweepTasks]; err != nil || done.Rows != 1 || done.Referenced != 3 || done.Passed != 3 {
					e.Errorf("%s, driver %d: %+v, %v, want one row cleared and three passed over", column, i, done, err)
				}
				if left := e.Int(`SELECT SUM(id) FROM ` + name); left != 1+2+3+5 {
					e.Errorf("%s, driver %d: the ids that are left add up to %d", column, i, left)
				}
			}
		}
	})
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

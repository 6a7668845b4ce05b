package reaper

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// Tables is the suite of the reaper on the user's own tables.
func Tables[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"EachUnitExactly":             tableUnits[Tx],
		"EachKindOfKey":               tableKeys[Tx],
		"BatchesGraceAndConditions":   tableBatches[Tx],
		"WhatIsRefused":               tableRefused[Tx],
		"ReferencedRowsArePassedOver": tableReferenced[Tx],
		"RenewedInBetween":            tableRenewed[Tx],
		"LockedRowIsPassedOver":       tableLocked[Tx],
		"FourReapersOfATable":         tableFourReapers[Tx],
		"GoesOnAfterAnError":          tableGoesOn[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// passes makes a table of n rows with ids from 1 on. They expired an hour ago, one microsecond
// apart.
func (e *env[Tx]) passes(name string, n int) reaper.Table {
	e.Helper()
	e.Must(`CREATE TABLE ` + name + ` (id BIGINT NOT NULL PRIMARY KEY, kind VARCHAR(10) NOT NULL, expires_at BIGINT)`)
	e.Must(`CREATE INDEX ` + name + `_expires ON ` + name + ` (expires_at, id)`)
	at := e.Now() - hour
	for from := 0; from < n; from += 500 {
		var values []string
		for i := from; i < min(from+500, n); i++ {
			values = append(values, fmt.Sprintf(`(%d, 'day', %d)`, i+1, at+i))
		}
		e.Must(`INSERT INTO ` + name + ` (id, kind, expires_at) VALUES ` + strings.Join(values, ", "))
	}
	return reaper.Table{TableSpec: holdfast.TableSpec{Table: name, Key: []string{"id"}}, Expires: "expires_at", Unit: reaper.Microseconds}
}

// sweepTable sweeps and fails unless it deleted exactly this number of rows of the first table
// and nothing else.
func (e *env[Tx]) sweepTable(r *reaper.Reaper, rows int64) reaper.TaskReport {
	e.Helper()
	report, err := r.Sweep(e.Ctx)
	if err != nil || len(report.Tasks) <= conformance.SweepTasks || report.Tasks[conformance.SweepTasks].Rows != rows || report.Rows() != rows {
		e.Fatalf("swept %+v, %v, want %d rows", report, err, rows)
	}
	return report.Tasks[conformance.SweepTasks]
}

func (e *env[Tx]) tableReaper(o reaper.Options, specs ...reaper.Table) *reaper.Reaper {
	e.Helper()
	o.Tables = specs
	return e.Reaper(o)
}

// tableUnits checks rows before and after now in every time unit, in a session whose time zone
// is far from UTC; with an index and with a table scan.
func tableUnits[Tx any](e *env[Tx]) {
	type unit struct {
		name, column string
		unit         reaper.Unit
		at           func(micros int) string
	}
	number := func(scale int) func(int) string { return func(n int) string { return fmt.Sprint(n / scale) } }
	units := []unit{
		{"micros", "BIGINT", reaper.Microseconds, number(1)},
		{"millis", "BIGINT", reaper.Milliseconds, number(1000)},
		{"seconds", "INTEGER", reaper.Seconds, number(1_000_000)},
	}
	utc := func(n int) string { return time.UnixMicro(int64(n)).UTC().Format("'2006-01-02 15:04:05.000000'") }
	switch e.Engine {
	case dbtest.Postgres:
		units = append(units,
			unit{"instant", "timestamptz", reaper.Timestamp, func(n int) string { return strings.Trim(utc(n), "'") }},
			unit{"utc", "timestamp", reaper.TimestampUTC, utc})
		units[3].at = func(n int) string { return `timestamptz '` + strings.Trim(utc(n), "'") + `+00'` }
	case dbtest.MySQL, dbtest.MariaDB:
		units = append(units,
			unit{"instant", "TIMESTAMP(6) NULL", reaper.Timestamp, func(n int) string { return fmt.Sprintf(`FROM_UNIXTIME(%d.%06d)`, n/1_000_000, n%1_000_000) }},
			unit{"utc", "DATETIME(6)", reaper.TimestampUTC, utc})
	}
	const second = 1_000_000
	for _, u := range units {
		for _, scan := range []bool{false, true} {
			name := fmt.Sprintf("%s_%v", u.name, scan)
			e.Must(`CREATE TABLE ` + name + ` (id BIGINT NOT NULL PRIMARY KEY, expires_at ` + u.column + `)`)
			if !scan {
				e.Must(`CREATE INDEX ` + name + `_i ON ` + name + ` (expires_at)`)
			}
			now := e.Now()
			for id, expires := range []string{u.at(now - 3*second), "NULL", u.at(now - 2*second), u.at(now + hour), u.at(now - 4*second), u.at(now - 2*hour)} {
				e.Must(fmt.Sprintf(`INSERT INTO %s (id, expires_at) VALUES (%d, %s)`, name, id, expires))
			}
			if e.Engine == dbtest.Postgres && u.unit >= reaper.Timestamp {
				e.Must(`INSERT INTO ` + name + ` (id, expires_at) VALUES (98, 'infinity')`)
			}
			spec := reaper.Table{TableSpec: holdfast.TableSpec{Table: name, Key: []string{"id"}}, Expires: "expires_at", Unit: u.unit, Scan: scan}
			o := quick(1) // the next batch starts after this one
			dry, err := e.tableReaper(o, spec).DryRun(e.Ctx)
			if err != nil || dry.Rows() != 4 || dry.Tasks[conformance.SweepTasks].Oldest < 2*time.Hour || dry.Tasks[conformance.SweepTasks].Oldest > 2*time.Hour+conformance.Timeout || dry.Tasks[conformance.SweepTasks].Task != name {
				e.Errorf("%s: the dry run counted %+v, %v", name, dry, err)
			}
			spec.Grace = time.Hour
			if done := e.sweepTable(e.tableReaper(o, spec), 1); done.Oldest < 2*time.Hour || done.Oldest > 2*time.Hour+conformance.Timeout || done.Task != name {
				e.Errorf("%s: %+v", name, done)
			}
			spec.Grace = 0
			e.sweepTable(e.tableReaper(o, spec), 3)
			if n := e.Int(`SELECT COUNT(*) FROM ` + name + ` WHERE id IN (1, 3)`); n != 2 {
				e.Errorf("%s: of what is not due %d are left", name, n)
			}
		}
	}
}

// tableKeys checks that a key the reaper has read finds its row again.
func tableKeys[Tx any](e *env[Tx]) {
	types := map[string][]string{
		"BIGINT":     {"-9007199254740993", "0", "9007199254740993"},
		"VARCHAR(9)": {"''", "'it''s'", "'ü'", "'a '"},
		e.Bytes(20):  {e.Blob([]byte{}), e.Blob([]byte{0}), e.Blob([]byte("\xff\x00'\\"))},
	}
	const id = "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'"
	switch e.Engine {
	case dbtest.Postgres:
		types["uuid"], types["numeric"] = []string{id}, []string{"1.50", "123456789012345678901234567890.1"}
		types["date"], types["text"] = []string{"'2026-02-28'"}, []string{"'x'"}
	case dbtest.MySQL, dbtest.MariaDB:
		types["DATE"], types["BIGINT UNSIGNED"] = []string{"'2026-02-28'"}, []string{"9223372036854775807"}
		types["CHAR(5)"], types["BINARY(3)"] = []string{"'x'"}, []string{"x'610000'"}
		if e.Engine == dbtest.MariaDB {
			types["UUID"] = []string{id}
		}
	case dbtest.SQLite: // a column holds values of any type: a []byte that a program binds stays a BLOB in a TEXT column
		types["TEXT"] = []string{"'a0'", "x'6130'", "x'6131'", "x''"}
		types["LONGBLOB"], types["INT"] = []string{"'a0'", "x'6130'"}, []string{"'a0'", "x'6130'", "x''", "1.5", "7"}
	}
	n, second := 0, access.Of(e.DB).Dialect.Ident("n n")
	for typ, values := range types {
		for _, scan := range []bool{false, true} {
			n++
			name := fmt.Sprintf("keys_%d", n)
			// The second column is part of the key, so the order uses both.
			e.Must(`CREATE TABLE ` + name + ` (k ` + typ + ` NOT NULL, ` + second + ` INTEGER NOT NULL, expires_at BIGINT, UNIQUE (` + second + `, k))`)
			e.Must(`CREATE INDEX ` + name + `_i ON ` + name + ` (expires_at)`)
			for _, v := range values {
				for i := range 3 {
					e.Must(fmt.Sprintf(`INSERT INTO %s (k, %s, expires_at) VALUES (%s, %d, %d)`, name, second, v, i, e.Now()-hour))
				}
			}
			spec := reaper.Table{TableSpec: holdfast.TableSpec{Table: name, Key: []string{"k", "n n"}}, Expires: "expires_at", Unit: reaper.Microseconds, Scan: scan}
			report, err := e.tableReaper(quick(2), spec).Sweep(e.Ctx)
			if err != nil || report.Rows() != int64(3*len(values)) || report.Tasks[conformance.SweepTasks].Passed != 0 {
				e.Errorf("a key of type %s, scan %v: %+v, %v", typ, scan, report, err)
			}
		}
	}
}

func tableBatches[Tx any](e *env[Tx]) {
	spec := e.passes("passes", 95)
	e.Must(`UPDATE passes SET kind = 'year' WHERE id > 90`)
	spec.Where = []holdfast.Cond{holdfast.Where("kind", "=", "day"), holdfast.Where("id", "<", 1000), holdfast.Where("id", ">=", 1)}
	for _, scan := range []bool{false, true} {
		spec.Scan = scan
		seen := &statements{}
		o := quick(10)
		o.MaxRows, o.Tables = 25, []reaper.Table{spec}
		r := e.Reaper(o, seen.observe())
		for i, want := range []int64{25, 25, 25, 15} {
			if done := e.sweepTable(r, want); done.Batches != int((want+9)/10) || done.Passed != 0 {
				e.Errorf("sweep %d: %+v", i, done)
			}
		}
		e.sweepTable(r, 0)
		if n := seen.count["sweep.table.write"]; n != 3+3+3+2 {
			e.Errorf("%d writes, want one a batch", n)
		}
		if n := e.Int(`SELECT COUNT(*) FROM passes`); n != 5 {
			e.Errorf("%d are left", n)
		}
		e.Must(`DELETE FROM passes`)
		at := e.Now() - hour
		for i := range 90 { // with equal times, and again with a table scan
			e.Must(`INSERT INTO passes (id, kind, expires_at) VALUES ($1, 'day', $2)`, i+1, at)
		}
		for i := range 5 {
			e.Must(`INSERT INTO passes (id, kind, expires_at) VALUES ($1, 'year', $2)`, i+91, at)
		}
	}
}

func tableRefused[Tx any](e *env[Tx]) {
	spec := e.passes("passes", 3)
	e.Must(`CREATE TABLE odd (id BIGINT NOT NULL, maybe BIGINT UNIQUE, part VARCHAR(10) NOT NULL, ratio REAL NOT NULL UNIQUE, at VARCHAR(40), expires_at BIGINT, UNIQUE (id, part))`)
	for what, change := range map[string]func(s *reaper.Table){
		"table":          func(s *reaper.Table) { s.Table = "missing" },
		"Holdfast's own": func(s *reaper.Table) { s.Table = "Holdfast_Locks" },
		"unique":         func(s *reaper.Table) { s.Key = []string{"kind"} },
		"NULL":           func(s *reaper.Table) { s.Table, s.Key = "odd", []string{"maybe"} },
		"REAL":           func(s *reaper.Table) { s.Table, s.Key = "odd", []string{"ratio"} },
		"columns":        func(s *reaper.Table) { s.Key = nil },
		"twice":          func(s *reaper.Table) { s.Key = []string{"id", "id"} },
		"no column":      func(s *reaper.Table) { s.Expires = "gone" },
		"NUL":            func(s *reaper.Table) { s.Expires = "a\x00b" },
		"Unit":           func(s *reaper.Table) { s.Unit = 0 },
		"wants an integer": func(s *reaper.Table) {
			s.Table, s.Key, s.Expires = "odd", []string{"id", "part"}, "at"
		},
		"wants a":      func(s *reaper.Table) { s.Unit = reaper.Timestamp },
		"no zone":      func(s *reaper.Table) { s.Unit = reaper.TimestampUTC },
		"CREATE INDEX": func(s *reaper.Table) { s.Table, s.Key = "odd", []string{"id", "part"} },
		"Grace":        func(s *reaper.Table) { s.Grace = -1 },
		"use one of": func(s *reaper.Table) {
			s.Where = []holdfast.Cond{holdfast.Where("kind", "= '' OR", "x")}
		},
		"compared": func(s *reaper.Table) { s.Where = []holdfast.Cond{holdfast.Where("kind", "=", 1)} },
		"Go string": func(s *reaper.Table) {
			s.Where = []holdfast.Cond{holdfast.Where("id", "=", "1")}
		},
	} {
		s := spec
		change(&s)
		_, err := reaper.New(e.Ctx, e.DB, reaper.Options{Tables: []reaper.Table{s}})
		if what == "no zone" || what == "REAL" { // the engines' texts differ
			what = ""
		}
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), what) {
			e.Errorf("%s: got %v", what, err)
		}
	}
	// Values that are no time are refused when the reaper reads them, and are never due.
	r := e.tableReaper(quick(10), spec)
	e.Must(`UPDATE passes SET expires_at = 0 WHERE id = 1`)
	e.Must(`UPDATE passes SET expires_at = $1 WHERE id = 2`, time.Now().Unix())
	if _, err := reaper.New(e.Ctx, e.DB, reaper.Options{Tables: []reaper.Table{spec}}); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "2000") {
		e.Errorf("got %v", err)
	}
	e.sweepTable(r, 1)
	spec.Where = []holdfast.Cond{holdfast.Where("expires_at", ">", 1_000_000_000_000)}
	e.sweepTable(e.tableReaper(quick(10), spec), 0)
}

// tableReferenced checks rows that a foreign key protects, also one that the engine checks at
// commit.
func tableReferenced[Tx any](e *env[Tx]) {
	spec := e.passes("passes", 40)
	deferred := ""
	if !e.InnoDB() {
		deferred = " DEFERRABLE INITIALLY DEFERRED"
	}
	e.Must(`CREATE TABLE uses (pass BIGINT NOT NULL, FOREIGN KEY (pass) REFERENCES passes (id)` + deferred + `)`)
	e.Must(`CREATE TABLE visits (pass BIGINT NOT NULL, FOREIGN KEY (pass) REFERENCES passes (id) ON DELETE CASCADE)`)
	e.Must(`INSERT INTO uses VALUES (7), (8), (33)`)
	e.Must(`INSERT INTO visits VALUES (9), (10)`)
	if e.Engine == dbtest.SQLite { // SQLite checks foreign keys only when they are enabled
		e.DB = e.Open(dbtest.With(e.DSN, "_pragma=foreign_keys(1)")).DB
	}
	o := quick(16)
	o.Tables = []reaper.Table{spec}
	r := e.Reaper(o)
	if done := e.sweepTable(r, 37); done.Passed != 3 || done.Referenced != 3 {
		e.Errorf("got %+v", done)
	}
	if n := e.Int(`SELECT COUNT(*) FROM visits`); n != 0 {
		e.Errorf("%d visits are left", n)
	}
	if p := e.History(1)[0].Tasks[conformance.SweepTasks]; p.Referenced != 3 || p.Task != "passes" {
		e.Errorf("recorded as %+v", p)
	}
	e.Must(`DELETE FROM uses`)
	e.sweepTable(r, 3)
}

// tableRenewed extends a row between the read and the write.
func tableRenewed[Tx any](e *env[Tx]) {
	spec := e.passes("passes", 5)
	later := e.Now() + hour
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name == "sweep.table.find" && nth == 1 {
			e.Must(`UPDATE passes SET expires_at = $1 WHERE id = 2`, later)
			e.Must(`UPDATE passes SET expires_at = NULL WHERE id = 3`)
			e.Must(`UPDATE passes SET kind = 'year' WHERE id = 4`)
		}
	}}
	spec.Where = []holdfast.Cond{holdfast.Where("kind", "=", "day")}
	o := quick(10)
	o.Tables = []reaper.Table{spec}
	if done := e.sweepTable(e.Reaper(o, seen.observe()), 2); done.Passed != 3 {
		e.Errorf("got %+v", done)
	}
	if n := e.Int(`SELECT SUM(id) FROM passes`); n != 2+3+4 {
		e.Errorf("the ids that are left add up to %d", n)
	}
}

func tableLocked[Tx any](e *env[Tx]) {
	if !e.DB.Capabilities().RowLocks {
		return // the reaper waits for SQLite's writer in every batch
	}
	spec := e.passes("passes", 20)
	tx := e.BeginTx(sql.LevelReadCommitted)
	if _, err := e.Exec(e.Ctx, tx, `UPDATE passes SET kind = 'held' WHERE id = 7`); err != nil {
		e.Fatal(err)
	}
	r := e.tableReaper(quick(8), spec)
	begun := time.Now()
	if done := e.sweepTable(r, 19); done.Passed != 1 {
		e.Errorf("got %+v", done)
	}
	if took := time.Since(begun); took > conformance.Timeout/10 {
		e.Errorf("waited for it: %v", took)
	}
	e.EndTx(tx, true)
	e.sweepTable(r, 1)
}

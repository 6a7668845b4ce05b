package hostile

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// odd is a row of a table with such column names.
type odd struct {
	Key     string `db:"k\"; DROP TABLE canary; --"`
	Value   string `db:"x') ; DELETE FROM canary; -- {tuples}{firsts}{p}{now}"`
	Version int64  `db:"v$1 ?'\\"`
	Expires int64  `db:"d{c}{p}{keys}{due}%s"`
}

const (
	oddKey     = `k"; DROP TABLE canary; --`
	oddValue   = `x') ; DELETE FROM canary; -- {tuples}{firsts}{p}{now}`
	oddVersion = `v$1 ?'\`
	oddExpires = `d{c}{p}{keys}{due}%s`
)

// oddTables returns table names.
func oddTables() []string {
	return []string{
		`a"; DROP TABLE canary; --`, "a`; DROP TABLE canary; --", `a'; DROP TABLE canary; --`, `a$1?:b@c`, `{now}{table}{keys}{tuples}{firsts}{due}{same}`,
		`a\`, `a -- b`, `a/*`, "\u00dcn\u00ef \u30b3", `select`, `a.b`, `%s%d%[1]s`, `A`,
	}
}

func (e *env[Tx]) quote(name string) string {
	q := `"`
	if e.InnoDB() {
		q = "`"
	}
	return q + strings.ReplaceAll(name, q, q+q) + q
}

// injectIdentifiers uses odd names of the program's own tables and columns in every feature that
// takes such names.
func injectIdentifiers[Tx any](e *env[Tx]) {
	l, err := sqllock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	for _, table := range oddTables() {
		at := e.quote(table)
		e.Must(`CREATE TABLE ` + at + ` (` + e.quote(oddKey) + ` ` + e.Text() + ` NOT NULL PRIMARY KEY, ` + e.quote(oddValue) + ` ` + e.Text() + ` NOT NULL, ` +
			e.quote(oddVersion) + ` BIGINT NOT NULL, ` + e.quote(oddExpires) + ` BIGINT NOT NULL)`)
		evil := `'; DELETE FROM ` + at + `; --`

		rows, err := businessrow.New[odd](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{oddKey}}, businessrow.Options{Compare: []string{oddValue}})
		if err != nil {
			e.Errorf("table %q: %v", table, err)
			continue
		}
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			row := odd{Key: evil, Value: evil, Version: 1, Expires: time.Now().Add(-time.Hour).UnixMicro()}
			if r, err := rows.Do(e.Ctx, row, func(context.Context, Tx) error { return nil }); err != nil || r.Outcome != want || r.Value.Value != evil {
				e.Errorf("table %q: %+v, %v", table, r, err)
			}
		}
		versioned, err := optimistic.New[odd](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{oddKey}}, optimistic.Options{Version: oddVersion})
		if err != nil {
			e.Fatalf("table %q: %v", table, err)
		}
		row, err := versioned.Get(e.Ctx, odd{Key: evil})
		if err == nil {
			row.Value = evil + evil
			row, err = versioned.Update(e.Ctx, row, oddValue)
		}
		if err != nil || row.Version != 2 {
			e.Errorf("table %q: versioned: %+v, %v", table, row, err)
		}
		if _, err := versioned.Update(e.Ctx, row, evil); err == nil {
			e.Errorf("table %q: a column %q was updated", table, evil)
		}
		err = versioned.Enforce(e.Ctx)
		if !e.DB.Capabilities().Triggers {
			err = nil
		} else if err == nil {
			_, e2 := e.SQL.ExecContext(e.Ctx, `UPDATE `+at+` SET `+e.quote(oddExpires)+` = 1`)
			if e2 == nil {
				e.Errorf("table %q: the trigger let an update through", table)
			}
			err = versioned.Unenforce(e.Ctx)
		}
		if err != nil {
			e.Errorf("table %q: enforce: %v", table, err)
		}
		e.oddFence(table)
		e.oddProcedure(table, versioned)
		locked, err := rowlock.NewTable[odd](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Key: []string{oddKey}})
		if err != nil {
			e.Fatalf("table %q: %v", table, err)
		}
		tx := e.BeginTx(sql.LevelReadCommitted)
		if found, err := locked.NextTx(e.Ctx, tx, 5, holdfast.Where(oddValue, "=", evil+evil)); err != nil || len(found) != 1 || found[0].Key != evil {
			e.Errorf("table %q: next: %+v, %v", table, found, err)
		}
		if found, err := locked.LockTx(e.Ctx, tx, holdfast.Forever, odd{Key: evil}); err != nil || len(found) != 1 {
			e.Errorf("table %q: lock: %+v, %v", table, found, err)
		}
		e.EndTx(tx, true)
		for _, c := range []holdfast.Cond{holdfast.Where(evil, "=", 1), holdfast.Where(oddValue, "= '' OR 1 =", "x")} {
			tx := e.BeginTx(sql.LevelReadCommitted)
			_, err := locked.NextTx(e.Ctx, tx, 5, c)
			e.refuses(table, "Where", err)
			e.EndTx(tx, false)
		}
		var value any = evil + evil
		if e.InnoDB() {
			value = []byte(evil + evil)
		}
		sweeper, err := reaper.New(e.Ctx, e.DB, reaper.Options{Tables: []reaper.Table{{TableSpec: holdfast.TableSpec{Table: table, Key: []string{oddKey}}, Expires: oddExpires, Unit: reaper.Microseconds, Scan: true, Where: []holdfast.Cond{holdfast.Where(oddValue, "=", value)}}}})
		if err != nil {
			e.Fatalf("table %q: %v", table, err)
		}
		if report, err := sweeper.Sweep(e.Ctx); err != nil {
			e.Errorf("table %q: sweep: %v, %v", table, err, report)
		}
		if n := e.Int(`SELECT COUNT(*) FROM ` + at); n != 0 {
			e.Errorf("table %q: %d rows were left", table, n)
		}
		e.whole(table)
	}
	if err := l.Close(e.Ctx); err != nil {
		e.Error(err)
	}
}

// injectNoTable uses names of tables that do not exist.
func injectNoTable[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.AnySchemaName)
	l, err := sqllock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	open := func(table, schema, key, version, expires string) map[string]error {
		_, err1 := businessrow.New[odd](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Schema: schema, Key: []string{key}})
		_, err2 := optimistic.New[odd](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Schema: schema, Key: []string{key}}, optimistic.Options{Version: version})
		_, err3 := rowlock.NewTable[odd](e.Ctx, e.DB, holdfast.TableSpec{Table: table, Schema: schema, Key: []string{key}})
		_, err4 := reaper.New(e.Ctx, e.DB, reaper.Options{Tables: []reaper.Table{{TableSpec: holdfast.TableSpec{Table: table, Schema: schema, Key: []string{key}}, Expires: expires, Unit: reaper.Seconds, Scan: true}}})
		return map[string]error{"businessrow": err1, "optimistic": err2, "rowlock": err3, "reaper": err4}
	}
	e.Must(`CREATE TABLE t (` + e.quote(oddKey) + ` ` + e.Text() + ` NOT NULL PRIMARY KEY, ` + e.quote(oddValue) + ` ` + e.Text() + ` NOT NULL, ` +
		e.quote(oddVersion) + ` BIGINT NOT NULL, ` + e.quote(oddExpires) + ` BIGINT NOT NULL)`)
	for _, evil := range append(Strings(), "", strings.Repeat("n", 300), `t" WHERE 1=1 --`, "t` WHERE 1=1 -- ") {
		for what, errs := range map[string]map[string]error{
			"TableSpec.Table": open(evil, "", oddKey, oddVersion, oddExpires),
			"TableSpec.Key":   open("t", "", evil, oddVersion, oddExpires),
		} {
			for who, err := range errs {
				var input *holdfast.InputError
				if !errors.As(err, &input) || !strings.Contains(input.Field, "Spec") {
					e.Errorf("%s, %s %q: %v", who, what, evil, err)
				}
			}
		}
		if evil == "" {
			continue
		}
		if err := open("t", "", oddKey, evil, oddExpires)["optimistic"]; !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("version %q: %v", evil, err)
		}
		if err := open("t", "", oddKey, oddVersion, evil)["reaper"]; !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("expires %q: %v", evil, err)
		}
		for who, err := range open("t", evil, oddKey, oddVersion, oddExpires) {
			if err == nil || e.Engine != dbtest.SQLite && !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%s, schema %q: %v", who, evil, err)
			}
		}
		e.whole(evil)
	}
	if err := l.Close(e.Ctx); err != nil {
		e.Error(err)
	}
}

// oddFence fences a table.
func (e *env[Tx]) oddFence(table string) {
	e.Helper()
	if !e.DB.Capabilities().Triggers {
		return
	}
	fenced, err := fence.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners), fence.Spec{Table: table, Token: oddVersion, Key: `'; DELETE FROM canary; -- {` + oddKey + `}`, Owner: `'"` + "`"})
	if err == nil {
		err = fenced.Enforce(e.Ctx)
	}
	if err == nil {
		_, e2 := e.SQL.ExecContext(e.Ctx, `UPDATE `+e.quote(table)+` SET `+e.quote(oddExpires)+` = 1`)
		if !errors.Is(fence.AsLost(e.DB, e2), sqllock.ErrLost) {
			e.Errorf("table %q: the fence let an update through: %v", table, e2)
		}
		err = fenced.Unenforce(e.Ctx)
	}
	if err != nil {
		e.Errorf("table %q: fence: %v", table, err)
	}
}

// oddProcedure creates a procedure for a table, for a role and under a name that are odd as well.
func (e *env[Tx]) oddProcedure(table string, versioned *optimistic.Table[odd, Tx]) {
	e.Helper()
	statements, err := versioned.ProcedureSQL(e.Ctx, optimistic.ProcedureOptions{Name: oddKey})
	if errors.Is(err, optimistic.ErrNotEnforced) {
		return
	}
	if err != nil {
		e.Errorf("table %q: procedure: %v", table, err)
	}
	for _, s := range statements {
		if _, err := e.SQL.ExecContext(e.Ctx, s); err != nil {
			e.Errorf("table %q: %s: %v", table, s, err)
		}
	}
}

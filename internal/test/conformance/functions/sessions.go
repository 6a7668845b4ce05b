package functions

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

var sessions = map[string]func(*env){
	"FunctionLevels":     functionLevels,
	"FunctionLookupOld":  functionLookupInAnOldSnapshot,
	"FunctionSettings":   functionSettings,
	"FunctionPrivileges": functionPrivileges,
	"FunctionSearchPath": functionSearchPath,
}

// functionLevels executes and replays at each isolation level, also in an old snapshot.
func functionLevels(e *env) {
	levels := append(e.Levels(), sql.LevelReadUncommitted)
	for _, level := range levels {
		key := fmt.Sprint("level ", level)
		old, err := e.SQL.BeginTx(e.Ctx, &sql.TxOptions{Isolation: level})
		e.Check(err)
		_, err = old.ExecContext(e.Ctx, `SELECT COUNT(*) FROM holdfast_schema`) // its snapshot
		e.Check(err)
		e.Check(e.inTx(level, func(tx *sql.Tx) error {
			a, err := e.claim(tx, key)
			e.want(key, a, err, "outcome", "claimed")
			e.Check(e.Effect(e.Ctx, tx, key))
			return e.finish(tx, a["claim"], "succeeded", `1`)
		}))
		a, err := e.claim(old, key)
		if err != nil && e.DB.Retryable(err) {
			a, err = answer{"outcome": "replayed"}, nil // it has to begin again
		}
		e.want(key+", an old snapshot", a, err, "outcome", "replayed")
		e.Check(old.Rollback())
		e.WantOnce(key)
	}
}

// functionLookupInAnOldSnapshot looks a key up that was executed after the snapshot of the caller's transaction: it is not said to be
// absent.
func functionLookupInAnOldSnapshot(e *env) {
	if e.Engine != dbtest.Postgres {
		return // lookup refuses a transaction there
	}
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		key := fmt.Sprint("old snapshot ", level)
		old, err := e.SQL.BeginTx(e.Ctx, &sql.TxOptions{Isolation: level})
		e.Check(err)
		_, err = old.ExecContext(e.Ctx, `SELECT COUNT(*) FROM holdfast_schema`) // its snapshot
		e.Check(err)
		_, err = e.do(key)
		e.Check(err)
		_, err = old.ExecContext(e.Ctx, `SELECT pg_sleep(1)`)
		e.Check(err)
		_, err = e.call(old, "lookup", "default", "", "refund", key, nil, 0)
		e.refused(key, err, "cannot say absent")
		e.Check(old.Rollback())
		e.want(key, e.lookup(key), nil, "outcome", "replayed")
	}
}

// functionSettings calls in a session with other settings, and looks that they are as they were.
func functionSettings(e *env) {
	read, set := `SELECT CONCAT(@@sql_mode, ' ', @@innodb_lock_wait_timeout, ' ', @@autocommit, ' ', @@sql_safe_updates)`,
		[]string{`SET SESSION innodb_lock_wait_timeout = 7`, `SET SESSION sql_mode = ''`, `SET SESSION sql_safe_updates = 1`}
	modes := []string{`SET SESSION sql_mode = 'ANSI'`, `SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'`}
	switch e.Engine {
	case dbtest.MySQL:
		set[0] = `SET SESSION innodb_lock_wait_timeout = 1`
		modes = append(modes, `SET SESSION completion_type = 'CHAIN'`, `SET SESSION transaction_isolation = 'READ-UNCOMMITTED'`)
	case dbtest.Postgres:
		read, set = `SELECT current_setting('lock_timeout') || current_setting('search_path') || current_setting('DateStyle')`,
			[]string{`SET lock_timeout = '7s'`, `SET bytea_output = 'escape'`, `SET DateStyle = 'German'`}
		modes = []string{`SET standard_conforming_strings = off`, `SET default_transaction_isolation = 'repeatable read'`}
	case dbtest.MariaDB:
		modes = append(modes, `SET SESSION sql_mode = 'ORACLE'`, `SET SESSION completion_type = 'CHAIN'`, `SET SESSION tx_isolation = 'READ-UNCOMMITTED'`,
			`SET SESSION default_regex_flags = 'EXTENDED,MULTILINE'`)
	}
	c := e.conn()
	for _, statement := range set {
		e.on(c, statement)
	}
	for i, mode := range modes {
		e.on(c, mode)
		state := func() (s string) {
			e.Check(c.QueryRowContext(e.Ctx, read).Scan(&s))
			return s
		}
		before := state()
		key := fmt.Sprint("settings ", i)
		a, err := e.call(c, "lookup", "default", "", "refund", key, nil, 0)
		e.want(mode, a, err, "outcome", "absent")
		e.on(c, "START TRANSACTION") // BEGIN is another statement in sql_mode ORACLE
		a, err = e.claim(c, key)
		e.want(mode, a, err, "outcome", "claimed")
		e.Check(e.finish(c, a["claim"], "succeeded", `"a\\b"`))
		e.on(c, "COMMIT AND NO CHAIN")
		a, err = e.call(c, "acquire", "", key, 60_000_000, newAttempt(), nil)
		e.want(mode, a, err, "outcome", "acquired")
		if after := state(); after != before {
			e.Errorf("%s: the settings were %q and are %q", mode, before, after)
		}
		e.want(mode, e.lookup(key), nil, "outcome", "replayed", "result", `"a\\b"`)
	}
	before, release := "", e.HoldKey("settings, held")
	e.Check(c.QueryRowContext(e.Ctx, read).Scan(&before))
	e.on(c, "START TRANSACTION")
	a, err := e.claimOf(c, "settings, held", nil, 0)
	e.want("after a wait", a, err, "outcome", "in_progress")
	e.on(c, "ROLLBACK AND NO CHAIN")
	var after string
	e.Check(c.QueryRowContext(e.Ctx, read).Scan(&after))
	if after != before {
		e.Errorf("after a wait the settings were %q and are %q", before, after)
	}
	release()
	_ = c.Raw(func(any) error { return errBad })
}

// functionPrivileges calls as a role that has the printed grants and no other.
func functionPrivileges(e *env) {
	name := "hf_" + newAttempt()[:12]
	schema, role := "", name+"@%"
	e.Check(e.SQL.QueryRowContext(e.Ctx, map[bool]string{true: `SELECT current_schema()`, false: `SELECT DATABASE()`}[e.Engine == dbtest.Postgres]).Scan(&schema))
	create, drop := `CREATE USER `+name+` IDENTIFIED BY 'x'`, []string{`DROP USER ` + name}
	if e.Engine == dbtest.Postgres {
		role, create, drop = name, `CREATE USER `+name+` PASSWORD 'x'`, []string{`DROP OWNED BY ` + name, `DROP USER ` + name}
	}
	e.Must(create)
	defer func() {
		for _, q := range drop {
			e.Must(q)
		}
	}()
	var grants strings.Builder
	e.Check(migrations.PrintFunctionGrants(&grants, holdfast.Engine(e.Engine), role, holdfast.Options{Schema: schema}))
	for line := range strings.Lines(grants.String()) {
		e.Must(strings.TrimSuffix(strings.TrimSpace(line), ";"))
	}
	scheme, rest, _ := strings.Cut(e.DSN, "://")
	pool := dbtest.OpenSQL(e.T, scheme+"://"+name+":x"+rest[strings.LastIndex(rest, "@"):])
	defer func() { _ = pool.Close() }()

	attempt := newAttempt()
	a, err := e.call(pool, "acquire", "", "privileges", 60_000_000, attempt, nil)
	e.want("acquire", a, err, "outcome", "acquired")
	tx, err := pool.BeginTx(e.Ctx, nil)
	e.Check(err)
	_, err = e.call(tx, "guard", "", "privileges", a["token"])
	e.Check(err)
	b, err := e.claim(tx, "privileges")
	e.want("claim", b, err, "outcome", "claimed")
	e.Check(e.finish(tx, b["claim"], "succeeded", `1`))
	e.Check(tx.Commit())
	c, err := e.call(pool, "lookup", "default", "", "refund", "privileges", nil, 0)
	e.want("lookup", c, err, "outcome", "replayed", "result", "1")
	for call, args := range map[string][]any{"renew": {"", "privileges", attempt, 60_000_000}, "release": {"", "privileges", attempt}} {
		d, err := e.call(pool, call, args...)
		if err != nil || d["outcome"] == "" {
			e.Errorf("%s: %v, %v", call, d, err)
		}
	}
	for _, q := range []string{
		`SELECT COUNT(*) FROM holdfast_records`, `UPDATE holdfast_locks SET token = 0`, `DELETE FROM holdfast_records`, `SELECT token FROM holdfast_floor`,
	} {
		if _, err := pool.ExecContext(e.Ctx, q); err == nil {
			e.Errorf("the role may %s", q)
		}
	}
	if _, err := e.call(pool, "key_hash", "", "", "", []byte("k")); err == nil {
		e.Error("the role may call a function that is not for clients")
	}
	if r, err := e.Do(e.Store(idempotency.Options{}), op("privileges")); err == nil {
		e.Errorf("Go reads a number as %q", r.Value)
	}
}

// functionSearchPath calls in a session whose search path has other functions, operators and tables of
// the same names first.
func functionSearchPath(e *env) {
	if e.Engine != dbtest.Postgres {
		return // a procedure's names are those of its database
	}
	c, other := e.conn(), "other_"+newAttempt()[:8]
	var schema string
	e.Check(c.QueryRowContext(e.Ctx, `SELECT current_schema()`).Scan(&schema))
	e.on(c, `CREATE SCHEMA `+other)
	defer e.Must(`DROP SCHEMA ` + other + ` CASCADE`)
	for _, statement := range []string{
		`CREATE FUNCTION ` + other + `.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea'`,
		`CREATE FUNCTION ` + other + `.octet_length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 7'`,
		`CREATE FUNCTION ` + other + `.always(bytea, bytea) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE OPERATOR ` + other + `.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = ` + other + `.always)`,
		`SET search_path = ` + other + `, pg_catalog, ` + schema,
		`CREATE TEMPORARY TABLE holdfast_records (LIKE ` + schema + `.holdfast_records)`,
		`CREATE TEMPORARY TABLE holdfast_calls (LIKE ` + schema + `.holdfast_calls)`,
	} {
		e.on(c, statement)
	}
	for _, outcome := range []string{"claimed", "replayed"} {
		e.on(c, "BEGIN")
		a, err := e.claim(c, "search path")
		e.want("claim", a, err, "outcome", outcome)
		if outcome == "claimed" {
			e.Check(e.finish(c, a["claim"], "succeeded", `1`))
		}
		e.on(c, "COMMIT")
	}
	e.want("lookup", e.lookup("search path"), nil, "outcome", "replayed", "result", "1")
	_ = c.Raw(func(any) error { return errBad })
}

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

var transactions = map[string]func(*env){
	"FunctionOutsideATransaction": functionOutsideATransaction,
	"FunctionWithoutFinish":       functionWithoutFinish,
	"FunctionRollback":            functionRollback,
	"FunctionSessionEnds":         functionSessionEnds,
	"FunctionImplicitCommit":      functionImplicitCommit,
	"FunctionAutocommitOff":       functionAutocommitOff,
	"FunctionSeveralClaims":       functionSeveralClaims,
	"FunctionSavepoints":          functionSavepoints,
	"FunctionLevels":              functionLevels,
	"FunctionSettings":            functionSettings,
	"FunctionPrivileges":          functionPrivileges,
	"FunctionSearchPath":          functionSearchPath,
}

// functionOutsideATransaction claims and guards with autocommit, where nothing would be protected.
func functionOutsideATransaction(e *env) {
	_, err := e.claim(e.SQL, "autocommit")
	e.refused("claim", err, "")
	e.want("nothing is claimed", e.lookup("autocommit"), nil, "outcome", "absent")
	token := e.acquired("autocommit", newAttempt())
	_, err = e.call(e.SQL, "guard", "", "autocommit", token)
	e.refused("guard", err, "guard ran outside a transaction")
}

// functionWithoutFinish commits a claim without its result.
func functionWithoutFinish(e *env) {
	err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.claim(tx, "unfinished")
		e.want("claim", a, err, "outcome", "claimed")
		return e.Effect(e.Ctx, tx, "unfinished")
	})
	if e.Engine == dbtest.Postgres { // which looks when the transaction commits
		e.refused("COMMIT", err, "without its result")
		e.want("lookup", e.lookup("unfinished"), nil, "outcome", "absent")
		if n := e.Effects("unfinished"); n != 0 {
			e.Errorf("%d effects", n)
		}
		return
	}
	e.Check(err)
	a, err := e.do("unfinished")
	e.want("the next", a, err, "outcome", "unknown")
	e.want("lookup", e.lookup("unfinished"), nil, "outcome", "unknown")
	e.WantOnce("unfinished")
}

func functionRollback(e *env) {
	tx, err := e.SQL.BeginTx(e.Ctx, nil)
	e.Check(err)
	a, err := e.claim(tx, "rolled back")
	e.want("claim", a, err, "outcome", "claimed")
	e.Check(e.finish(tx, a["claim"], "succeeded", `1`))
	e.Check(tx.Rollback())
	b, err := e.do("rolled back")
	e.want("again", b, err, "outcome", "claimed")
	e.WantOnce("rolled back")
	// The claim of a transaction is nothing to another one.
	err = e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		c, err := e.claim(tx, "rolled back, other")
		e.want("claim", c, err, "outcome", "claimed")
		return e.finish(tx, a["claim"], "succeeded", `1`)
	})
	e.refused("finish of another transaction", err, "")
	err = e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		c, err := e.claim(tx, "twice")
		e.want("claim", c, err, "outcome", "claimed")
		e.Check(e.finish(tx, c["claim"], "succeeded", `1`))
		return e.finish(tx, c["claim"], "succeeded", `2`)
	})
	e.refused("finish twice", err, "")
}

// functionSessionEnds ends the session of a client that has claimed, as its death does.
func functionSessionEnds(e *env) {
	id := map[bool]string{true: `SELECT pg_backend_pid()`, false: `SELECT CONNECTION_ID()`}[e.Engine == dbtest.Postgres]
	for i, finished := range []bool{false, true} {
		key, c := fmt.Sprint("session ", i), e.conn()
		var session int64
		e.Check(c.QueryRowContext(e.Ctx, id).Scan(&session))
		e.on(c, "BEGIN")
		a, err := e.claim(c, key)
		e.want("claim", a, err, "outcome", "claimed")
		e.Check(effectOn(e, c, key))
		if finished {
			e.Check(e.finish(c, a["claim"], "succeeded", `1`))
		}
		e.EndSession(session)
		e.Eventually("the key is free", func() bool {
			a, err = e.do(key)
			return err == nil && a["outcome"] == "claimed"
		})
		e.WantOnce(key)
		_ = c.Raw(func(any) error { return errBad })
	}
}

// functionImplicitCommit ends the transaction between claim and finish, and goes on.
func functionImplicitCommit(e *env) {
	ends := []string{"COMMIT", "ROLLBACK"}
	if e.Engine != dbtest.Postgres {
		ends = append(ends, "CREATE TABLE implicit (n INTEGER)", "START TRANSACTION", "DROP TABLE implicit", "SET autocommit = 1")
	}
	for i, end := range ends {
		for _, again := range []string{"", "BEGIN"} {
			key := fmt.Sprint("ended ", i, again)
			c := e.conn()
			e.on(c, "BEGIN")
			if end == "SET autocommit = 1" {
				e.on(c, "SET autocommit = 0")
			}
			a, err := e.claim(c, key)
			e.want("claim", a, err, "outcome", "claimed")
			e.Check(effectOn(e, c, key))
			_, err = c.ExecContext(e.Ctx, strings.Replace(end, "implicit", "implicit"+again, 1))
			if (err != nil) != (end == "COMMIT" && e.Engine == dbtest.Postgres) {
				e.Errorf("%s: %v", end, err)
			}
			if again != "" {
				e.on(c, again)
				b, err := e.claim(c, key+" and another")
				e.want("claim", b, err, "outcome", "claimed")
			}
			e.refused(end+again, e.finish(c, a["claim"], "succeeded", `1`), "")
			_, _ = c.ExecContext(e.Ctx, "ROLLBACK")
			e.Check(c.Close())
		}
	}
}

// functionAutocommitOff calls in a session that begins its transactions without a word, as some drivers do.
func functionAutocommitOff(e *env) {
	if !e.InnoDB() {
		return // the server has no such setting
	}
	c := e.conn()
	e.on(c, "SET autocommit = 0")
	for i, end := range []string{"COMMIT", "ROLLBACK", "COMMIT"} {
		a, err := e.claim(c, "autocommit off")
		e.want(end, a, err, "outcome", []string{"claimed", "replayed", "replayed"}[i])
		if a["outcome"] == "claimed" {
			e.Check(effectOn(e, c, "autocommit off"))
			e.Check(e.finish(c, a["claim"], "succeeded", `1`))
		}
		e.on(c, end)
	}
	e.WantOnce("autocommit off")
	a, err := e.claim(c, "autocommit off, DDL")
	e.want("claim", a, err, "outcome", "claimed")
	e.on(c, "CREATE TABLE autocommit_off (n INTEGER)")
	e.refused("finish after DDL", e.finish(c, a["claim"], "succeeded", `1`), "transaction has ended")
	e.on(c, "DROP TABLE autocommit_off")
	for call, args := range map[string][]any{
		"lookup": {"default", "", "refund", "k", nil, 0}, "acquire": {"", "k", minute, newAttempt(), nil}, "release": {"", "k", newAttempt()},
	} {
		_, err := e.call(c, call, args...)
		e.refused(call, err, "autocommit=0")
	}
	e.on(c, "ROLLBACK")
	e.on(c, "SET autocommit = 1")
}

func effectOn(e *env, c *sql.Conn, key string) error {
	_, err := c.ExecContext(e.Ctx, e.Rebind(`INSERT INTO effects (k, who) VALUES ($1, $2)`), []byte(key), "holder")
	return err
}

// functionSeveralClaims finishes several claims of one transaction, in another order.
func functionSeveralClaims(e *env) {
	const n = 5
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		claims := make([]string, n)
		for i := range claims {
			a, err := e.claim(tx, fmt.Sprint("several ", i))
			e.want("claim", a, err, "outcome", "claimed")
			claims[i] = a["claim"]
		}
		for _, i := range []int{2, 0, 4, 3, 1} {
			if err := e.finish(tx, claims[i], "succeeded", fmt.Sprint(i)); err != nil {
				return err
			}
		}
		a, err := e.claim(tx, "several 0")
		e.want("claim again", a, err, "outcome", "replayed", "result", "0")
		return nil
	}))
	err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.claim(tx, "finished twice")
		e.want("claim", a, err, "outcome", "claimed")
		b, err := e.claim(tx, "not finished")
		e.want("claim", b, err, "outcome", "claimed")
		e.Check(e.finish(tx, a["claim"], "succeeded", `1`))
		return e.finish(tx, a["claim"], "succeeded", `2`)
	})
	e.refused("finish twice beside another claim", err, "does not have the claim")
	for i := range n {
		e.want("lookup", e.lookup(fmt.Sprint("several ", i)), nil, "outcome", "replayed", "result", fmt.Sprint(i))
	}
}

// functionSavepoints undoes work, and claims, by the client's savepoints.
func functionSavepoints(e *env) {
	run := func(tx *sql.Tx, statement string) {
		_, err := tx.ExecContext(e.Ctx, statement)
		e.Check(err)
	}
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		a, err := e.claim(tx, "savepoint")
		e.want("claim", a, err, "outcome", "claimed")
		run(tx, "SAVEPOINT work")
		e.Check(e.Effect(e.Ctx, tx, "savepoint"))
		run(tx, "ROLLBACK TO SAVEPOINT work")
		run(tx, "RELEASE SAVEPOINT work")
		return e.finish(tx, a["claim"], "rejected", `{"code":"no","message":""}`)
	}))
	if n := e.Effects("savepoint"); n != 0 {
		e.Errorf("%d effects", n)
	}
	e.want("lookup", e.lookup("savepoint"), nil, "outcome", "replayed", "state", "rejected")

	err := e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		run(tx, "SAVEPOINT earlier")
		a, err := e.claim(tx, "undone")
		e.want("claim", a, err, "outcome", "claimed")
		run(tx, "ROLLBACK TO SAVEPOINT earlier")
		return e.finish(tx, a["claim"], "succeeded", `1`)
	})
	e.refused("finish of an undone claim", err, "")
	e.Check(e.inTx(sql.LevelDefault, func(tx *sql.Tx) error { // and it may be claimed again in the same transaction
		run(tx, "SAVEPOINT earlier")
		_, err := e.claim(tx, "undone")
		e.Check(err)
		run(tx, "ROLLBACK TO SAVEPOINT earlier")
		a, err := e.claim(tx, "undone")
		e.want("claim", a, err, "outcome", "claimed")
		return e.finish(tx, a["claim"], "succeeded", `1`)
	}))
	e.want("lookup", e.lookup("undone"), nil, "outcome", "replayed")
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

// functionSettings calls in a session with other settings, and looks that they are as they were.
func functionSettings(e *env) {
	read, set := `SELECT CONCAT(@@sql_mode, ' ', @@innodb_lock_wait_timeout, ' ', @@autocommit, ' ', @@sql_safe_updates)`,
		[]string{`SET SESSION innodb_lock_wait_timeout = 7`, `SET SESSION sql_mode = ''`, `SET SESSION sql_safe_updates = 1`}
	modes := []string{`SET SESSION sql_mode = 'ANSI'`, `SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH'`}
	switch e.Engine {
	case dbtest.Postgres:
		read, set = `SELECT current_setting('lock_timeout') || current_setting('search_path') || current_setting('DateStyle')`,
			[]string{`SET lock_timeout = '7s'`, `SET bytea_output = 'escape'`, `SET DateStyle = 'German'`}
		modes = []string{`SET standard_conforming_strings = off`, `SET default_transaction_isolation = 'repeatable read'`}
	case dbtest.MariaDB:
		modes = append(modes, `SET SESSION sql_mode = 'ORACLE'`, `SET SESSION completion_type = 'CHAIN'`)
	default:
		modes = append(modes, `SET SESSION completion_type = 'CHAIN'`, `SET SESSION transaction_isolation = 'READ-UNCOMMITTED'`)
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
		return // a procedure's names are those of its own database
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

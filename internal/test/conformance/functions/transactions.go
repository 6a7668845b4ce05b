package functions

import (
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
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

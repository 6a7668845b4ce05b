package functions

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

var guards = map[string]func(*env){
	"FunctionGuard":        functionGuard,
	"FunctionGuardOldView": functionGuardOldView,
}

// guard calls guard in a transaction, runs f and commits.
func (e *env) guard(key string, token int64, f func(tx *sql.Tx)) error {
	return e.inTx(sql.LevelDefault, func(tx *sql.Tx) error {
		_, err := e.call(tx, "guard", "", key, token)
		if err == nil {
			f(tx)
		}
		return err
	})
}

// functionGuard keeps an expired lease from being taken over until its transaction ends.
func functionGuard(e *env) {
	locks := e.locker(sqllock.Options{})
	mine, theirs := newAttempt(), newAttempt()
	token := e.acquired("guarded", mine)
	e.Check(e.guard("guarded", token, func(tx *sql.Tx) {
		a, err := e.call(e.SQL, "renew", "", "guarded", mine, minute)
		e.want("renew beside a guard", a, err, "outcome", "busy")
		e.Check(e.Effect(e.Ctx, tx, "guarded"))
	}))
	e.WantOnce("guarded")

	a, err := e.call(e.SQL, "release", "", "guarded", mine)
	e.want("release", a, err, "outcome", "released")
	mine = newAttempt()
	a, err = e.call(e.SQL, "acquire", "", "guarded", 50_000, mine, nil)
	e.want("a short one", a, err, "outcome", "acquired")
	token, _ = strconv.ParseInt(a["token"], 10, 64)
	e.Check(e.guard("guarded", token, func(tx *sql.Tx) {
		e.Eventually("it expires", func() bool {
			a, err = e.call(e.SQL, "renew", "", "guarded", mine, minute)
			return err == nil && a["outcome"] == "lost"
		})
		a, err = e.call(e.SQL, "acquire", "", "guarded", minute, theirs, nil)
		e.want("acquire beside a guard", a, err, "outcome", "held")
		if _, err := locks.TryAcquire(e.Ctx, "guarded"); !errors.Is(err, sqllock.ErrHeld) {
			e.Errorf("Go: %v", err)
		}
		// Guards of one term run side by side.
		e.Check(e.guard("guarded", token, func(*sql.Tx) {}))
		e.Check(e.Effect(e.Ctx, tx, "guarded 2"))
	}))
	e.WantOnce("guarded 2")
	if next := e.acquired("guarded", theirs); next <= token {
		e.Errorf("token %d after %d", next, token)
	}
}

// functionGuardOldView guards in a snapshot that is older than the grant.
func functionGuardOldView(e *env) {
	for i, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		key := fmt.Sprint("old view ", i/2)
		tx, err := e.SQL.BeginTx(e.Ctx, &sql.TxOptions{Isolation: level})
		e.Check(err)
		var n int
		e.Check(tx.QueryRowContext(e.Ctx, `SELECT COUNT(*) FROM holdfast_schema`).Scan(&n))
		mine := newAttempt()
		token := e.acquired(key, mine)
		_, err = e.call(tx, "guard", "", key, token)
		switch {
		case level == sql.LevelSerializable && e.InnoDB(): // where reads lock
			e.Check(err)
		case err == nil:
			e.Errorf("%v: a guard in an old snapshot", level)
		case !e.DB.Retryable(err) && e.Engine == dbtest.Postgres:
			e.Errorf("%v: %v", level, err)
		}
		_ = tx.Rollback()
		a, err := e.call(e.SQL, "release", "", key, mine)
		e.want("release", a, err, "outcome", "released")
	}
}

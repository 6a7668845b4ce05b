package conformance

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// BeginTx begins a transaction for the caller. It is rolled back, if it has not ended, when the
// test ends: a pool waits for it otherwise.
func (e *Env[Tx]) BeginTx(l sql.IsolationLevel) Tx {
	e.Helper()
	tx, err := e.Begin(e.Ctx, l)
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.Ctx), dbtest.Slack)
		defer cancel()
		_ = e.End(ctx, tx, false)
	})
	return tx
}

// EndTx commits or rolls back tx and fails on an error.
func (e *Env[Tx]) EndTx(tx Tx, commit bool) {
	e.Helper()
	if err := e.End(e.Ctx, tx, commit); err != nil {
		e.Errorf("ending the caller's transaction: %v", err)
	}
}

// SessionOf returns the id of the session of a transaction.
func (e *Env[Tx]) SessionOf(tx Tx) (id string) {
	e.Helper()
	q, err := access.Of(e.DB).Join(tx)
	e.Check(err)
	_, err = core.QueryRow(e.Ctx, q, []any{&id}, access.Of(e.DB).Dialect.Doctor.Session)
	e.Check(err)
	return id
}

// EndSession ends a session on the server, which may have ended already. On PostgreSQL it waits for
// the end: a session to which the signal has not come yet still answers.
func (e *Env[Tx]) EndSession(id int64) {
	e.Helper()
	dbtest.Needs(e, e.Engine, dbtest.Kill)
	if e.Engine != dbtest.Postgres {
		if _, err := e.SQL.ExecContext(e.Ctx, `KILL `+strconv.FormatInt(id, 10)); err != nil && dialect.Code(err) != "error 1094" { // no such session
			e.Fatal(err)
		}
		return
	}
	e.Must(`SELECT pg_terminate_backend($1)`, id)
	e.Eventually("the session ends", func() (gone bool) {
		err := e.SQL.QueryRowContext(e.Ctx, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, id).Scan(&gone)
		return err == nil && gone
	})
}

// WantRolledBack fails unless Holdfast has rolled tx back.
func (e *Env[Tx]) WantRolledBack(tx Tx) {
	e.Helper()
	if err := e.End(e.Ctx, tx, true); err == nil {
		e.Error("the transaction was not rolled back")
	}
}

// WantLost fails unless err is ErrTxLost and key has no effect.
func (e *Env[Tx]) WantLost(what string, err error, key string) {
	e.Helper()
	if !errors.Is(err, holdfast.ErrTxLost) {
		e.Errorf("%s: got %v, want ErrTxLost", what, err)
	}
	if n := e.Effects(key); n != 0 {
		e.Errorf("%s: %d effects stand without their claim", what, n)
	}
}

// ReadInt reads one number in a transaction; found is false when there is no row.
func (e *Env[Tx]) ReadInt(tx Tx, query string, args ...any) (n int, found bool, err error) {
	e.Helper()
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		return 0, false, err
	}
	found, err = core.QueryRow(e.Ctx, q, []any{&n}, e.Rebind(query), args...)
	return n, found, err
}

package conformance

import (
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// BeginTx begins a transaction for the caller.
func (e *Env[Tx]) BeginTx(l sql.IsolationLevel) Tx {
	e.Helper()
	tx, err := e.Begin(e.Ctx, l)
	if err != nil {
		e.Fatal(err)
	}
	return tx
}

// EndTx commits or rolls back tx and fails on an error.
func (e *Env[Tx]) EndTx(tx Tx, commit bool) {
	e.Helper()
	if err := e.End(e.Ctx, tx, commit); err != nil {
		e.Errorf("ending the caller's transaction: %v", err)
	}
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
	q, err := e.DB.Access().Join(tx)
	if err != nil {
		return 0, false, err
	}
	found, err = core.QueryRow(e.Ctx, q, []any{&n}, e.Rebind(query), args...)
	return n, found, err
}

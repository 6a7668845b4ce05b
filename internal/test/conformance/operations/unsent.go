package operations

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Unsent is the suite of functions that do not close their rows.
func Unsent[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Run("RowsLeftOpen", func(t *testing.T) {
		t.Parallel()
		run(t, h, rowsLeftOpen[Tx])
	})
}

// leave reads the first row and leaves the others open.
func (e *env[Tx]) leave(ctx context.Context, tx Tx, key string) error {
	if err := e.Effect(ctx, tx, key); err != nil {
		return err
	}
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		return err
	}
	rows, err := q.Query(ctx, `SELECT k FROM effects UNION ALL SELECT k FROM effects UNION ALL SELECT k FROM effects`)
	if err != nil {
		return err
	}
	if !rows.Next() {
		return errors.New("no row")
	}
	return rows.Err()
}

// rowsLeftOpen checks that work which could not be sent is not done. The error names the
// mistake, and the function does not run again. Where the driver can send in spite of the open
// rows, the work is done.
func rowsLeftOpen[Tx any](e *env[Tx]) {
	runs := 0
	wants := func(key string, err error) {
		e.Helper()
		n := e.Effects(key)
		if done := err == nil && n == 1; !done && (!errors.Is(err, holdfast.ErrRowsOpen) || errors.Is(err, holdfast.ErrUnknown) || n != 0) {
			e.Errorf("%s: %d effects, %v", key, n, err)
		}
		if runs != 1 {
			e.Errorf("%s: the function ran %d times", key, runs)
		}
		runs = 0
		e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
	}
	s := e.Store(idempotency.Options{})
	leave := func(key string) func(ctx context.Context, tx Tx) (string, error) {
		return func(ctx context.Context, tx Tx) (string, error) {
			runs++
			return "", e.leave(ctx, tx, key)
		}
	}
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("do"), leave("do"))
	wants("do", err)
	wants("intx", e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		_, err := leave("intx")(ctx, tx)
		return err
	}))
	_, err = e.Refunds().Do(e.Ctx, conformance.Refund{No: "row", Amount: 1}, func(ctx context.Context, tx Tx) error {
		_, err := leave("row")(ctx, tx)
		return err
	})
	wants("row", err)
	tx := e.BeginTx(sql.LevelDefault)
	_, err = idempotency.DoTx(e.Ctx, s, tx, conformance.Op("dotx"), leave("dotx"))
	if err != nil {
		e.WantRolledBack(tx)
	} else {
		e.EndTx(tx, true)
	}
	if e.InnoDB() && errors.Is(err, holdfast.ErrTxLost) && strings.Contains(err.Error(), "rows were left open") {
		err = holdfast.ErrRowsOpen // the driver closes the connection, and may have had another reason
	}
	wants("dotx", err)

	tx = e.BeginTx(sql.LevelDefault)
	if err := e.leave(e.Ctx, tx, "commit"); err != nil {
		e.Fatal(err)
	}
	outcome := e.DB.CommitOutcome(e.End(e.Ctx, tx, true))
	if n := e.Effects("commit"); outcome != holdfast.Done && n == 1 || outcome != holdfast.NotDone && n == 0 {
		e.Errorf("a caller's own commit: %v, and %d effects", outcome, n)
	}
	for _, key := range []string{"do", "dotx"} {
		if _, err := e.Do(s, conformance.Op(key)); err != nil {
			e.Errorf("%s, again: %v", key, err)
		}
		e.WantOnce(key)
	}
}

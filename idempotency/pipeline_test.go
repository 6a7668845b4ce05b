package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPipelined checks that on a native pgx pool, a call with a new key takes as many round
// trips as a bare transaction, in each of pgx's query modes.
func TestPipelined(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		if engine != dbtest.Postgres {
			continue // only pgx has native pools
		}
		for _, mode := range conformance.ExecModes() {
			t.Run(mode, func(t *testing.T) {
				t.Parallel()
				var mu sync.Mutex
				var waited []string
				e := conformance.New(t, conformance.With(conformance.Pgx(), "default_query_exec_mode="+mode, engine), engine,
					holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
						mu.Lock()
						defer mu.Unlock()
						if s.Duration > 0 && s.Name != "" { // the effect has no name
							waited = append(waited, s.Name)
						}
					}}})
				pipelined(e, func() []string {
					mu.Lock()
					defer mu.Unlock()
					was := waited
					waited = nil
					return was
				})
			})
		}
	}
}

func pipelined(e *conformance.Env[pgx.Tx], waited func() []string) {
	s := e.Store(idempotency.Options{})
	var kept pgx.Tx
	do := func(key string, harm func(tx pgx.Tx) error) error {
		_, err := idempotency.Do(e.Ctx, s, conformance.Op(key), func(ctx context.Context, tx pgx.Tx) (string, error) {
			kept = tx
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			if harm != nil {
				return "", harm(tx)
			}
			return "done", nil
		})
		return err
	}
	for i := range 9 {
		if err := do(fmt.Sprint(i), nil); err != nil {
			e.Fatal(err)
		}
	}
	waited()
	if err := do("key", nil); err != nil {
		e.Fatal(err)
	}
	if got := waited(); !slices.Equal(got, []string{"records.claim", "records.finish"}) {
		e.Errorf("waited for %v", got)
	}
	e.WantOnce("key")

	// The transaction has ended, and another call may be using its connection.
	_, execError := kept.Exec(e.Ctx, `SELECT 1`)
	rows, queryError := kept.Query(e.Ctx, `SELECT 1`)
	rows.Close()
	_, beginError := kept.Begin(e.Ctx)
	_, copyError := kept.CopyFrom(e.Ctx, pgx.Identifier{"effects"}, []string{"k"}, pgx.CopyFromRows(nil))
	_, prepareError := kept.Prepare(e.Ctx, "late", `SELECT 1`)
	b := &pgx.Batch{}
	b.Queue(`SELECT 1`)
	var one int
	for what, err := range map[string]error{
		"Exec": execError, "Query": queryError, "Begin": beginError, "CopyFrom": copyError, "Prepare": prepareError,
		"QueryRow": kept.QueryRow(e.Ctx, `SELECT 1`).Scan(&one), "SendBatch": kept.SendBatch(e.Ctx, b).Close(),
		"Commit": kept.Commit(e.Ctx), "Rollback": kept.Rollback(e.Ctx),
	} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			e.Errorf("%s after the end: %v", what, err)
		}
	}

	// If the transaction at the end is not the one that wrote the record, nothing commits.
	for what, harm := range map[string]func(tx pgx.Tx) error{
		"swallows an error": func(tx pgx.Tx) error {
			_, _ = tx.Exec(e.Ctx, `SELECT 1 / 0`)
			return nil
		},
		"rolls back": func(tx pgx.Tx) error { return tx.Rollback(e.Ctx) },
		"begins another": func(tx pgx.Tx) error {
			_, err := tx.Exec(e.Ctx, `ROLLBACK`)
			if err == nil {
				_, err = tx.Exec(e.Ctx, `BEGIN`)
			}
			return errors.Join(err, e.Effect(e.Ctx, tx, "begins another"))
		},
	} {
		if err := do(what, harm); !errors.Is(err, holdfast.ErrTxLost) {
			e.Errorf("a function that %s: %v", what, err)
		}
		if n := e.Effects(what); n != 0 {
			e.Errorf("a function that %s: %d effects", what, n)
		}
		if err := do(what, nil); err != nil {
			e.Errorf("after a function that %s: %v", what, err)
		}
	}

	// A key that already has a record is still detected.
	if err := do("key", nil); err != nil {
		e.Error(err)
	}
	e.WantOnce("key")
}

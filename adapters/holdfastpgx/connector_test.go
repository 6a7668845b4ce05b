package holdfastpgx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestConnector checks what a call waits for on a pool of database/sql with the connector, and that its
// transaction, which database/sql did not begin, ends for the program too.
func TestConnector(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // pgx
		}
		pool := dbtest.OpenConnector(t, dbtest.DSN(t, e), holdfastpgx.Connector)
		pool.SetMaxOpenConns(1)
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if _, err := pool.ExecContext(t.Context(), `CREATE TABLE effects (k TEXT)`); err != nil {
			t.Fatal(err)
		}
		var waited []string
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if s.Duration > 0 {
				waited = append(waited, s.Name)
			}
		}}})
		if err != nil {
			t.Fatal(err)
		}
		store, err := idempotency.New(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		var kept *sql.Tx
		do := func(key string, harm func(ctx context.Context, tx *sql.Tx) error) error {
			_, err := idempotency.Do(t.Context(), store, idempotency.Op{Name: "refund", Key: key, Request: key}, func(ctx context.Context, tx *sql.Tx) (string, error) {
				kept = tx
				if _, err := tx.ExecContext(ctx, `INSERT INTO effects VALUES ($1)`, key); err != nil || harm == nil {
					return "", err
				}
				return "", harm(ctx, tx)
			})
			return err
		}
		effects := func(key string) (n int) {
			if err := pool.QueryRowContext(t.Context(), `SELECT count(*) FROM effects WHERE k = $1`, key).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for i := range 12 {
			waited = nil
			if err := do(fmt.Sprint(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(waited, []string{"records.claim", "records.finish"}) {
			t.Errorf("waited for %v", waited)
		}
		if _, err := kept.ExecContext(t.Context(), `SELECT 1`); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("after the end: %v", err)
		}
		boom := errors.New("boom")
		for what, c := range map[string]struct {
			harm    func(ctx context.Context, tx *sql.Tx) error
			want    error
			effects int
		}{
			"fails":             {func(context.Context, *sql.Tx) error { return boom }, boom, 0},
			"rolls back":        {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, holdfast.ErrTxLost, 0},
			"commits":           {func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }, holdfast.ErrTxLost, 1},
			"swallows an error": {func(ctx context.Context, tx *sql.Tx) error { _, _ = tx.ExecContext(ctx, `SELECT 1 / 0`); return nil }, holdfast.ErrTxLost, 0},
			"begins another": {func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `ROLLBACK`)
				if err == nil {
					_, err = tx.ExecContext(ctx, `BEGIN`)
				}
				if err == nil {
					_, err = tx.ExecContext(ctx, `INSERT INTO effects VALUES ('begins another')`)
				}
				return err
			}, holdfast.ErrTxLost, 0},
			"leaves rows open": {func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.QueryContext(ctx, `SELECT generate_series(1, 100000)`) //nolint:rowserrcheck,sqlclosecheck,gocritic // this is the trap
				return err
			}, holdfast.ErrRowsOpen, 0},
		} {
			if err := do(what, c.harm); !errors.Is(err, c.want) {
				t.Errorf("a function that %s: %v", what, err)
			}
			if n := effects(what); n != c.effects {
				t.Errorf("a function that %s: %d effects", what, n)
			}
			if err := do("after "+what, nil); err != nil || effects("after "+what) != 1 {
				t.Errorf("after a function that %s: %v", what, err)
			}
		}
		// The pool is the program's own again.
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO effects VALUES ('own')`); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil || effects("own") != 0 {
			t.Errorf("the program's own transaction: %v", err)
		}
	})
}

package refunds

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/refund"
	"github.com/holdfast-go/holdfast/optimistic"
)

// account is a row with a version. Each order has one.
type account struct {
	ID      int64 `db:"id"`
	Cents   int64 `db:"cents"`
	Version int64 `db:"version"`
}

// accounts makes the table, once the orders are there.
var accounts = []string{
	`CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL, version BIGINT NOT NULL)`,
	`INSERT INTO accounts SELECT id, 0, 1 FROM orders`,
}

// bareVersion reads a row and updates it if it still has its version, in a transaction.
func bareVersion(_ context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
	read, write := `SELECT cents, version FROM accounts WHERE id = ?`, `UPDATE accounts SET cents = ?, version = version + 1 WHERE id = ? AND version = ?`
	if e.Name == sqlengine.Postgres {
		read, write = `SELECT cents, version FROM accounts WHERE id = $1`, `UPDATE accounts SET cents = $1, version = version + 1 WHERE id = $2 AND version = $3`
	}
	return func(ctx context.Context, order int64, _ string) error {
		return refund.Bare(ctx, e.SQL, func(tx *sql.Tx) error {
			var cents, version int64
			if err := tx.QueryRowContext(ctx, read, order).Scan(&cents, &version); err != nil {
				return err
			}
			r, err := tx.ExecContext(ctx, write, cents+refund.Cents, order, version)
			if err != nil {
				return err
			}
			if n, err := r.RowsAffected(); err != nil || n != 1 {
				return errors.Join(err, errors.New("another has changed the row"))
			}
			return nil
		})
	}, nothing, nil
}

// version does the same with optimistic, in a transaction of the program's own.
func version(ctx context.Context, db *holdfast.DB[*sql.Tx], pool *sql.DB, _ *steps) (Do, error) {
	table, err := optimistic.New[account](ctx, db, holdfast.TableSpec{Table: "accounts", Key: []string{"id"}})
	return func(ctx context.Context, order int64, _ string) error {
		return refund.Bare(ctx, pool, func(tx *sql.Tx) error {
			row, err := table.GetTx(ctx, tx, account{ID: order})
			if err != nil {
				return err
			}
			row.Cents += refund.Cents
			_, err = table.UpdateTx(ctx, tx, row)
			return err
		})
	}, err
}

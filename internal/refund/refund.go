// Package refund is the refund that holdfast bench and the comparisons in bench/ measure: four statements
// in one transaction. Both compare Holdfast with it.
package refund

import (
	"context"
	"database/sql"
	"errors"
)

// Orders is the number of orders to refund, and Cents the amount of one refund.
const (
	Orders = 10_000
	Cents  = 125
)

// ErrOverpaid means that the refunds would exceed the paid amount.
var ErrOverpaid = errors.New("more than was paid")

// Texts are the statements of the service. Every refund reads its order for update, increases the
// refunded amount, and writes the refund and a line of the ledger. Amounts are in cents.
type Texts struct {
	Tables                      []string // makes them
	Fill                        string   // makes the orders
	Lock, Raise, Refund, Ledger string
	RaiseIf                     string // Lock and Raise in one statement, for a pipeline; only for PostgreSQL
	Look                        string // the minimal read of a replay
}

// TextsOf returns the statements on an engine, such as "postgres". name returns the name of a table.
func TextsOf(engine string, name func(table string) string) Texts {
	orders, refunds, ledger := name("orders"), name("refunds"), name("ledger")
	t := Texts{
		Lock:   `SELECT paid, refunded FROM ` + orders + ` WHERE id = ? FOR UPDATE`,
		Raise:  `UPDATE ` + orders + ` SET refunded = refunded + ? WHERE id = ?`,
		Refund: `INSERT INTO ` + refunds + ` (refund_no, order_id, cents) VALUES (?, ?, ?)`,
		Ledger: `INSERT INTO ` + ledger + ` (order_id, cents) VALUES (?, ?)`,
		Look:   `SELECT order_id, cents FROM ` + refunds + ` WHERE refund_no = ?`,
	}
	switch engine {
	case "postgres":
		t = Texts{
			Tables: []string{
				`CREATE TABLE ` + orders + ` (id bigint PRIMARY KEY, paid bigint NOT NULL, refunded bigint NOT NULL)`,
				`CREATE TABLE ` + refunds + ` (refund_no text PRIMARY KEY, order_id bigint NOT NULL, cents bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())`,
				`CREATE TABLE ` + ledger + ` (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id bigint NOT NULL, cents bigint NOT NULL)`,
			},
			Fill:    `INSERT INTO ` + orders + ` SELECT n, 1125899906842624, 0 FROM generate_series(1, 10000) n`,
			Lock:    `SELECT paid, refunded FROM ` + orders + ` WHERE id = $1 FOR UPDATE`,
			Raise:   `UPDATE ` + orders + ` SET refunded = refunded + $1 WHERE id = $2`,
			RaiseIf: `UPDATE ` + orders + ` SET refunded = refunded + $1 WHERE id = $2 AND refunded + $1 <= paid`,
			Refund:  `INSERT INTO ` + refunds + ` (refund_no, order_id, cents) VALUES ($1, $2, $3)`,
			Ledger:  `INSERT INTO ` + ledger + ` (order_id, cents) VALUES ($1, $2)`,
			Look:    `SELECT order_id, cents FROM ` + refunds + ` WHERE refund_no = $1`,
		}
	case "sqlite":
		t.Tables = []string{
			`CREATE TABLE ` + orders + ` (id INTEGER PRIMARY KEY, paid INTEGER NOT NULL, refunded INTEGER NOT NULL)`,
			`CREATE TABLE ` + refunds + ` (refund_no TEXT NOT NULL PRIMARY KEY, order_id INTEGER NOT NULL, cents INTEGER NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)`,
			`CREATE TABLE ` + ledger + ` (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, cents INTEGER NOT NULL)`,
		}
		t.Fill = `WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10000) INSERT INTO ` + orders + ` SELECT n, 1125899906842624, 0 FROM c`
		t.Lock = `SELECT paid, refunded FROM ` + orders + ` WHERE id = ?`
	default:
		t.Tables = []string{
			`CREATE TABLE ` + orders + ` (id BIGINT PRIMARY KEY, paid BIGINT NOT NULL, refunded BIGINT NOT NULL) ENGINE=InnoDB`,
			`CREATE TABLE ` + refunds + ` (refund_no VARBINARY(64) PRIMARY KEY, order_id BIGINT NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE=InnoDB`,
			`CREATE TABLE ` + ledger + ` (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT NOT NULL, cents BIGINT NOT NULL) ENGINE=InnoDB`,
		}
		t.Fill = `INSERT INTO ` + orders + ` SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n, 1125899906842624, 0 FROM
` + digits("a") + `, ` + digits("b") + `, ` + digits("c") + `, ` + digits("d")
	}
	return t
}

// digits returns a table of the numbers 0 to 9.
func digits(name string) string {
	return `(SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) ` + name
}

// Tx sends the statements of one transaction: a *sql.Tx, or one with prepared statements.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Run makes one refund of an order.
func (t Texts) Run(ctx context.Context, tx Tx, order int64, key string) error {
	if err := t.Money(ctx, tx, order); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, t.Refund, key, order, int64(Cents))
	return err
}

// Money is Run without the refund's own row.
func (t Texts) Money(ctx context.Context, tx Tx, order int64) error {
	var paid, refunded int64
	if err := tx.QueryRowContext(ctx, t.Lock, order).Scan(&paid, &refunded); err != nil {
		return err
	}
	if refunded+Cents > paid {
		return ErrOverpaid
	}
	if _, err := tx.ExecContext(ctx, t.Raise, int64(Cents), order); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, t.Ledger, order, int64(Cents))
	return err
}

// Bare runs the refund, in the function given, in a transaction without a key.
func Bare(ctx context.Context, pool *sql.DB, run func(tx *sql.Tx) error) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := run(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

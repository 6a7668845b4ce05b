// Package refunds makes one refund as a transaction, in bare statements and under Holdfast,
// each behind the same interface.
package refunds

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// Orders is the number of orders to refund, and Cents the amount of one refund.
const (
	Orders = 10_000
	Cents  = 125
)

// Do makes one refund of an order under a new key, or replays it if the key was used before.
type Do func(ctx context.Context, order int64, key string) error

// Form is a way to make a refund.
type Form struct {
	Name, Kind string
	// Statements and Against are as in locks.Competitor.
	Statements float64
	Against    string
	// Open opens the form; observe is nil while time is measured.
	Open func(ctx context.Context, e *sqlengine.Engine, observe holdfast.Observer) (do Do, closes func() error, err error)
}

// ErrOverpaid means that the refunds would exceed the paid amount.
var ErrOverpaid = errors.New("more than was paid")

// Every refund reads its order for update, increases the refunded amount, and writes the
// refund and a line of the ledger. Amounts are in cents.
type texts struct {
	tables                      []string
	fill                        string
	lock, raise, refund, ledger string
	raiseIf                     string // lock and raise in one statement, for a pipeline
	look                        string // the minimal read of a replay
}

var lastKey atomic.Int64

// NewKey returns a key that no other call gets.
func NewKey(client int) string {
	return "refund/" + strconv.Itoa(client) + "/" + strconv.FormatInt(lastKey.Add(1), 10)
}

func textsOf(engine string) texts {
	switch engine {
	case sqlengine.Postgres:
		return texts{
			tables: []string{
				`CREATE TABLE orders (id bigint PRIMARY KEY, paid bigint NOT NULL, refunded bigint NOT NULL)`,
				`CREATE TABLE refunds (refund_no text PRIMARY KEY, order_id bigint NOT NULL, cents bigint NOT NULL, at timestamptz NOT NULL DEFAULT now())`,
				`CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id bigint NOT NULL, cents bigint NOT NULL)`,
			},
			fill:    `INSERT INTO orders SELECT n, 1125899906842624, 0 FROM generate_series(1, 10000) n`,
			lock:    `SELECT paid, refunded FROM orders WHERE id = $1 FOR UPDATE`,
			raise:   `UPDATE orders SET refunded = refunded + $2 WHERE id = $1`,
			raiseIf: `UPDATE orders SET refunded = refunded + $2 WHERE id = $1 AND refunded + $2 <= paid`,
			refund:  `INSERT INTO refunds (refund_no, order_id, cents) VALUES ($1, $2, $3)`,
			ledger:  `INSERT INTO ledger (order_id, cents) VALUES ($1, $2)`,
			look:    `SELECT order_id, cents FROM refunds WHERE refund_no = $1`,
		}
	case sqlengine.SQLite:
		return texts{
			tables: []string{
				`CREATE TABLE orders (id INTEGER PRIMARY KEY, paid INTEGER NOT NULL, refunded INTEGER NOT NULL)`,
				`CREATE TABLE refunds (refund_no TEXT NOT NULL PRIMARY KEY, order_id INTEGER NOT NULL, cents INTEGER NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)`,
				`CREATE TABLE ledger (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, cents INTEGER NOT NULL)`,
			},
			fill:   `WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 10000) INSERT INTO orders SELECT n, 1125899906842624, 0 FROM c`,
			lock:   `SELECT paid, refunded FROM orders WHERE id = ?`,
			raise:  `UPDATE orders SET refunded = refunded + ? WHERE id = ?`,
			refund: `INSERT INTO refunds (refund_no, order_id, cents) VALUES (?, ?, ?)`,
			ledger: `INSERT INTO ledger (order_id, cents) VALUES (?, ?)`,
			look:   `SELECT order_id, cents FROM refunds WHERE refund_no = ?`,
		}
	default:
		return texts{
			tables: []string{
				`CREATE TABLE orders (id BIGINT PRIMARY KEY, paid BIGINT NOT NULL, refunded BIGINT NOT NULL) ENGINE=InnoDB`,
				`CREATE TABLE refunds (refund_no VARBINARY(64) PRIMARY KEY, order_id BIGINT NOT NULL, cents BIGINT NOT NULL, at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE=InnoDB`,
				`CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT NOT NULL, cents BIGINT NOT NULL) ENGINE=InnoDB`,
			},
			fill: `INSERT INTO orders SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n, 1125899906842624, 0 FROM
` + digits("a") + `, ` + digits("b") + `, ` + digits("c") + `, ` + digits("d"),
			lock:   `SELECT paid, refunded FROM orders WHERE id = ? FOR UPDATE`,
			raise:  `UPDATE orders SET refunded = refunded + ? WHERE id = ?`,
			refund: `INSERT INTO refunds (refund_no, order_id, cents) VALUES (?, ?, ?)`,
			ledger: `INSERT INTO ledger (order_id, cents) VALUES (?, ?)`,
			look:   `SELECT order_id, cents FROM refunds WHERE refund_no = ?`,
		}
	}
}

// digits returns a table of the numbers 0 to 9.
func digits(name string) string {
	return `(SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) ` + name
}

// Tables creates the tables of the service, with their orders.
func Tables(ctx context.Context, e *sqlengine.Engine) error {
	t := textsOf(e.Name)
	return e.Exec(ctx, append(t.tables, t.fill)...)
}

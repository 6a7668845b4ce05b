//go:build linux

package cluster_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/sqllock"
)

// The tables of the storm: an order has refunds, and a refund has one effect. The table effects
// would accept a second effect.
const (
	orders = 100
	cents  = 125
)

func tables(bytes string) []string {
	return []string{
		`CREATE TABLE orders (order_no INTEGER NOT NULL PRIMARY KEY, refunded BIGINT NOT NULL)`,
		`CREATE TABLE effects (id VARCHAR(40) NOT NULL PRIMARY KEY, refund_no INTEGER NOT NULL, order_no INTEGER NOT NULL, cents BIGINT NOT NULL)`,
		`CREATE INDEX effects_refund_no ON effects (refund_no)`,
		`CREATE TABLE refunds (refund_no INTEGER NOT NULL PRIMARY KEY, order_no INTEGER NOT NULL)`,
		// fences contains what a resource that compares tokens has seen of a lock.
		`CREATE TABLE fences (lock_key ` + bytes + ` NOT NULL PRIMARY KEY, token BIGINT NOT NULL, back INTEGER NOT NULL)`,
	}
}

// asker requests refunds in each of three ways: an idempotency record, the business row, and a
// lease with a guarded transaction.
type asker[Tx any] struct {
	db    *holdfast.DB[Tx]
	store *idempotency.Store[Tx]
	rows  *businessrow.Table[refundRow, Tx]
	locks *sqllock.Locker[Tx]
	exec  func(ctx context.Context, tx Tx, query string, args ...any) (affected int64, err error)
	count func(ctx context.Context, tx Tx, query string, args ...any) (n int, err error)
}

type refundRow struct {
	No    int `db:"refund_no"`
	Order int `db:"order_no"`
}

// prepare opens the objects that the three ways need.
func (a *asker[Tx]) prepare(ctx context.Context) (err error) {
	o := idempotency.Options{Wait: 10 * time.Second}
	if a.store, err = idempotency.New(ctx, a.db, o); err != nil {
		return err
	}
	a.rows, err = businessrow.New[refundRow](ctx, a.db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}}, businessrow.Options{Compare: []string{"order_no"}, Wait: o.Wait})
	if err != nil {
		return err
	}
	a.locks, err = sqllock.New(ctx, a.db, sqllock.Options{TTL: 3 * time.Second})
	return err
}

// ask requests a refund; executed reports whether this call executed it.
func (a *asker[Tx]) ask(ctx context.Context, no int) (executed bool, err error) {
	switch no % 3 {
	case 0:
		r, err := idempotency.Do(ctx, a.store, idempotency.Op{Name: "refund", Key: fmt.Sprint(no), Request: no}, func(ctx context.Context, tx Tx) (string, error) {
			return "done", a.effect(ctx, tx, no)
		})
		return r.Outcome == idempotency.Executed, err
	case 1:
		r, err := a.rows.Do(ctx, refundRow{no, no % orders}, func(ctx context.Context, tx Tx) error { return a.effect(ctx, tx, no) })
		return r.Outcome == idempotency.Executed, err
	}
	return a.askUnderLease(ctx, no)
}

// askUnderLease reads after the guard, where a transaction on any node sees the writes of
// earlier holders.
func (a *asker[Tx]) askUnderLease(ctx context.Context, no int) (executed bool, err error) {
	settled := false
	key := lockKey(no)
	err = a.locks.Do(ctx, key, func(ctx context.Context, lease *sqllock.Lease) error {
		err := a.locks.InTx(ctx, lease, func(ctx context.Context, tx Tx) error {
			made, err := a.count(ctx, tx, `SELECT COUNT(*) FROM effects WHERE refund_no = $1`, no)
			if executed = err == nil && made == 0; !executed {
				return err
			}
			_, err = a.exec(ctx, tx, `UPDATE fences SET back = back + CASE WHEN token >= $1 THEN 1 ELSE 0 END, token = $1 WHERE lock_key = $2`, lease.Token(), key)
			if err != nil {
				return err
			}
			return a.effect(ctx, tx, no)
		})
		settled = err == nil
		return err
	})
	if settled { // the lease may be lost by now; the guarded commit is valid
		return executed, nil
	}
	return false, err
}

func lockKey(no int) string { return fmt.Sprintf("order/%d", no%orders) }

func (a *asker[Tx]) effect(ctx context.Context, tx Tx, no int) error {
	_, err := a.exec(ctx, tx, `INSERT INTO effects (id, refund_no, order_no, cents) VALUES ($1, $2, $3, $4)`, rand.Text(), no, no%orders, cents)
	if err != nil {
		return err
	}
	n, err := a.exec(ctx, tx, `UPDATE orders SET refunded = refunded + $1 WHERE order_no = $2`, cents, no%orders)
	if err == nil && n != 1 {
		err = errors.New("there is no such order")
	}
	return err
}

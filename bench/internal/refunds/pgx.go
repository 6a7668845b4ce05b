package refunds

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/refund"
)

var pg = textsOf(sqlengine.Postgres)

// stepsPgx runs the service's statements one after the other.
func stepsPgx(ctx context.Context, tx pgx.Tx, order int64, key string) error {
	if err := moneyPgx(ctx, tx, order); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, pg.Refund, key, order, int64(refund.Cents))
	return err
}

// moneyPgx is stepsPgx without the refund's own row.
func moneyPgx(ctx context.Context, tx pgx.Tx, order int64) error {
	var paid, refunded int64
	if err := tx.QueryRow(ctx, pg.Lock, order).Scan(&paid, &refunded); err != nil {
		return err
	}
	if refunded+refund.Cents > paid {
		return refund.ErrOverpaid
	}
	if _, err := tx.Exec(ctx, pg.Raise, int64(refund.Cents), order); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, pg.Ledger, order, int64(refund.Cents))
	return err
}

// queue adds the service's statements, in their form without a read, to a batch.
func queue(b *pgx.Batch, order int64, key string) {
	b.Queue(pg.RaiseIf, int64(refund.Cents), order).Exec(func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != 1 {
			return refund.ErrOverpaid
		}
		return nil
	})
	b.Queue(pg.Refund, key, order, int64(refund.Cents))
	b.Queue(pg.Ledger, order, int64(refund.Cents))
}

// batchPgx sends the statements in one round trip.
func batchPgx(ctx context.Context, tx pgx.Tx, order int64, key string) error {
	b := &pgx.Batch{}
	queue(b, order, key)
	return tx.SendBatch(ctx, b).Close()
}

type stepsOf func(ctx context.Context, tx pgx.Tx, order int64, key string) error

// barePgx is the transaction without a key.
func barePgx(steps stepsOf) func(context.Context, *sqlengine.Engine, holdfast.Observer) (Do, func() error, error) {
	return func(_ context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
		within := withinPgx(e)
		return func(ctx context.Context, order int64, key string) error {
			return within(ctx, func(tx pgx.Tx) error { return steps(ctx, tx, order, key) })
		}, nothing, nil
	}
}

// withinPgx runs a function in a transaction.
func withinPgx(e *sqlengine.Engine) func(ctx context.Context, run func(tx pgx.Tx) error) error {
	return func(ctx context.Context, run func(tx pgx.Tx) error) error {
		tx, err := e.Pgx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := run(tx); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	}
}

// pipelinePgx is the transaction in one round trip, including BEGIN and COMMIT. If a refund is
// refused, the server rolls everything back.
func pipelinePgx(_ context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, order int64, key string) error {
		b := &pgx.Batch{}
		b.Queue(`BEGIN`)
		queue(b, order, key)
		b.Queue(`COMMIT`)
		return e.Pgx.SendBatch(ctx, b).Close()
	}, nothing, nil
}

// oursPgx is the transaction under Holdfast.
func oursPgx(protect func(ctx context.Context, db *holdfast.DB[pgx.Tx], e *sqlengine.Engine) (Do, error)) func(context.Context, *sqlengine.Engine, holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, e *sqlengine.Engine, observe holdfast.Observer) (Do, func() error, error) {
		db, err := holdfastpgx.Open(ctx, e.Pgx, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{observe}})
		if err != nil {
			return nil, nil, err
		}
		do, err := protect(ctx, db, e)
		return do, nothing, err
	}
}

func doPgx(steps stepsOf) func(context.Context, *holdfast.DB[pgx.Tx], *sqlengine.Engine) (Do, error) {
	return func(ctx context.Context, db *holdfast.DB[pgx.Tx], _ *sqlengine.Engine) (Do, error) {
		return under(ctx, db, steps)
	}
}

func doTxPgx(ctx context.Context, db *holdfast.DB[pgx.Tx], e *sqlengine.Engine) (Do, error) {
	return underTx(ctx, db, withinPgx(e), stepsPgx)
}

func tableDoPgx(ctx context.Context, db *holdfast.DB[pgx.Tx], _ *sqlengine.Engine) (Do, error) {
	return underTable(ctx, db, moneyPgx)
}

// lookPgx reads a refund by its number, which is the minimum for a replay.
func lookPgx(_ context.Context, e *sqlengine.Engine, _ holdfast.Observer) (Do, func() error, error) {
	return func(ctx context.Context, _ int64, key string) error {
		var order, cents int64
		return e.Pgx.QueryRow(ctx, pg.Look, key).Scan(&order, &cents)
	}, nothing, nil
}

package locks

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// lockTx locks a key in a transaction of the program's, and releases it with the COMMIT.
func lockTx(ctx context.Context, w *World) (*Lock, error) {
	db, err := onSQL(ctx, w)
	if err != nil {
		return nil, err
	}
	l, err := rowlock.New(ctx, db)
	if err != nil {
		return nil, err
	}
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		tx, err := w.Engine.SQL.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		if err := l.LockTx(ctx, tx, key, holdfast.Forever); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return func(context.Context) error { return tx.Commit() }, nil
	}}, nil
}

// guarded acquires a lease, and guards a transaction with it.
func guarded(ctx context.Context, w *World) (*Lock, error) {
	db, err := onSQL(ctx, w)
	if err != nil {
		return nil, err
	}
	l, err := sqllock.New(ctx, db, sqllock.Options{TTL: TTL})
	if err != nil {
		return nil, err
	}
	return &Lock{
		Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
			held, err := l.Acquire(ctx, key)
			if err != nil {
				return nil, err
			}
			tx, err := w.Engine.SQL.BeginTx(ctx, nil)
			if err != nil {
				return nil, errors.Join(err, held.Release(ctx))
			}
			if err := l.Guard(ctx, tx, held.Term()); err != nil {
				return nil, errors.Join(err, tx.Rollback(), held.Release(ctx))
			}
			return func(ctx context.Context) error { return errors.Join(tx.Commit(), held.Release(ctx)) }, nil
		},
		Close: l.Close,
	}, nil
}

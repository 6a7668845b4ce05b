package locks

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/sqllock"
)

func onPgx(ctx context.Context, w *World) (*holdfast.DB[pgx.Tx], error) {
	return holdfastpgx.Open(ctx, w.Engine.Pgx, w.options()...)
}

func onSQL(ctx context.Context, w *World) (*holdfast.DB[*sql.Tx], error) {
	return holdfastsql.Open(ctx, w.Engine.SQL, w.options()...)
}

func onDefault(ctx context.Context, w *World) (*holdfast.DB[*sql.Tx], error) {
	return holdfastsql.Open(ctx, w.Engine.Default, w.options()...)
}

// lease is Holdfast's lease.
func lease[Tx any](open func(context.Context, *World) (*holdfast.DB[Tx], error)) func(context.Context, *World) (*Lock, error) {
	return locker(open, func(l *sqllock.Locker[Tx]) acquire { return l.Acquire })
}

type acquire func(ctx context.Context, key string, opts ...sqllock.Option) (*sqllock.Lease, error)

func locker[Tx any](open func(context.Context, *World) (*holdfast.DB[Tx], error), of func(*sqllock.Locker[Tx]) acquire) func(context.Context, *World) (*Lock, error) {
	return func(ctx context.Context, w *World) (*Lock, error) {
		db, err := open(ctx, w)
		if err != nil {
			return nil, err
		}
		l, err := sqllock.New(ctx, db, sqllock.Options{TTL: TTL})
		if err != nil {
			return nil, err
		}
		get := of(l)
		return &Lock{
			Acquire: func(ctx context.Context, key string) (Release, error) {
				held, err := get(ctx, key)
				if err != nil {
					return nil, err
				}
				return held.Release, nil
			},
			Close: l.Close,
		}, nil
	}
}

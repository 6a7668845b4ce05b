package locks

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

func onPgx(ctx context.Context, w *World) (*holdfast.DB[pgx.Tx], error) {
	return holdfastpgx.Open(ctx, w.Engine.Pgx, w.options())
}

func onSQL(ctx context.Context, w *World) (*holdfast.DB[*sql.Tx], error) {
	return holdfastsql.Open(ctx, w.Engine.SQL, w.options())
}

func onDefault(ctx context.Context, w *World) (*holdfast.DB[*sql.Tx], error) {
	return holdfastsql.Open(ctx, w.Engine.Default, w.options())
}

// opens opens Holdfast on one of the pools.
type opens[Tx any] func(context.Context, *World) (*holdfast.DB[Tx], error)

// lease opens Holdfast's lease.
func lease[Tx any](open opens[Tx]) func(context.Context, *World) (*Lock, error) {
	return locker(open, sqllock.Options{TTL: TTL}, leases[Tx])
}

// fair opens Holdfast's lock that grants in the order of the requests.
func fair[Tx any](open opens[Tx]) func(context.Context, *World) (*Lock, error) {
	return locker(open, sqllock.Options{TTL: TTL}, fairs[Tx])
}

func leases[Tx any](l *sqllock.Locker[Tx]) acquire { return l.Acquire }

func fairs[Tx any](l *sqllock.Locker[Tx]) acquire { return fairlock.New(l).Acquire }

type acquire func(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error)

func locker[Tx any](open opens[Tx], opts sqllock.Options, of func(*sqllock.Locker[Tx]) acquire) func(context.Context, *World) (*Lock, error) {
	return func(ctx context.Context, w *World) (*Lock, error) {
		db, err := open(ctx, w)
		if err != nil {
			return nil, err
		}
		l, err := sqllock.New(ctx, db, opts)
		if err != nil {
			return nil, err
		}
		get := of(l)
		return &Lock{
			Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
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

// Leases opens Holdfast's leases on the engine's pool of database/sql.
func Leases(ctx context.Context, e *sqlengine.Engine, opts ...holdfast.Options) (*Lock, error) {
	return lease(func(ctx context.Context, w *World) (*holdfast.DB[*sql.Tx], error) {
		return holdfastsql.Open(ctx, w.Engine.SQL, opts...)
	})(ctx, &World{Engine: e})
}

package conformance

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/adapters/holdfastsqlx"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func everywhere(dbtest.Engine) bool { return true }

// SQL is the handle of database/sql.
func SQL() Handle[*sql.Tx] {
	return Handle[*sql.Tx]{Name: "sql", Runs: everywhere, Open: func(tb testing.TB, dsn string, opts ...holdfast.Option) Pool[*sql.Tx] {
		return SQLPool(tb, dbtest.OpenSQL(tb, dsn), opts...)
	}}
}

// With is h with a parameter added to the DSN, on the engines named.
func With[Tx any](h Handle[Tx], param string, engines ...dbtest.Engine) Handle[Tx] {
	open := h.Open
	h.Name += "?" + param
	h.Runs = func(e dbtest.Engine) bool { return slices.Contains(engines, e) }
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) Pool[Tx] {
		return open(tb, dbtest.With(dsn, param), opts...)
	}
	return h
}

// Only is h on the engines named.
func Only[Tx any](h Handle[Tx], engines ...dbtest.Engine) Handle[Tx] {
	h.Runs = func(e dbtest.Engine) bool { return slices.Contains(engines, e) }
	return h
}

// SQLPool opens Holdfast on a pool that the test made.
func SQLPool(tb testing.TB, pool *sql.DB, opts ...holdfast.Option) Pool[*sql.Tx] {
	tb.Helper()
	db, err := holdfastsql.Open(tb.Context(), pool, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return Pool[*sql.Tx]{
		DB: db,
		Begin: func(ctx context.Context, l sql.IsolationLevel) (*sql.Tx, error) {
			return pool.BeginTx(ctx, &sql.TxOptions{Isolation: l})
		},
		End:   func(_ context.Context, tx *sql.Tx, commit bool) error { return endStd(tx, commit) },
		InUse: func() int { return pool.Stats().InUse },
		Close: func() { _ = pool.Close() },
	}
}

func endStd(tx *sql.Tx, commit bool) error {
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

// SQLX is the handle of sqlx.
func SQLX() Handle[*sqlx.Tx] {
	return Handle[*sqlx.Tx]{Name: "sqlx", Runs: everywhere, Open: func(tb testing.TB, dsn string, opts ...holdfast.Option) Pool[*sqlx.Tx] {
		tb.Helper()
		name, _, err := dbtest.DriverDSN(dsn)
		if err != nil {
			tb.Fatal(err)
		}
		pool := sqlx.NewDb(dbtest.OpenSQL(tb, dsn), name)
		db, err := holdfastsqlx.Open(tb.Context(), pool, opts...)
		if err != nil {
			tb.Fatal(err)
		}
		return Pool[*sqlx.Tx]{
			DB: db,
			Begin: func(ctx context.Context, l sql.IsolationLevel) (*sqlx.Tx, error) {
				return pool.BeginTxx(ctx, &sql.TxOptions{Isolation: l})
			},
			End:   func(_ context.Context, tx *sqlx.Tx, commit bool) error { return endStd(tx.Tx, commit) },
			InUse: func() int { return pool.Stats().InUse },
			Close: func() { _ = pool.Close() },
		}
	}}
}

// Pgx is the native handle of pgx.
func Pgx() Handle[pgx.Tx] {
	return Handle[pgx.Tx]{
		Name: "pgx", Runs: func(e dbtest.Engine) bool { return e == dbtest.Postgres },
		Open: func(tb testing.TB, dsn string, opts ...holdfast.Option) Pool[pgx.Tx] {
			tb.Helper()
			pool := dbtest.OpenPgx(tb, dsn)
			db, err := holdfastpgx.Open(tb.Context(), pool, opts...)
			if err != nil {
				tb.Fatal(err)
			}
			return Pool[pgx.Tx]{
				DB: db,
				Begin: func(ctx context.Context, l sql.IsolationLevel) (pgx.Tx, error) {
					level := map[sql.IsolationLevel]pgx.TxIsoLevel{
						sql.LevelReadCommitted: pgx.ReadCommitted, sql.LevelRepeatableRead: pgx.RepeatableRead,
						sql.LevelSerializable: pgx.Serializable,
					}[l]
					return pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
				},
				End: func(ctx context.Context, tx pgx.Tx, commit bool) error {
					if commit {
						return tx.Commit(ctx)
					}
					return tx.Rollback(ctx)
				},
				InUse: func() int { return int(pool.Stat().AcquiredConns()) },
				Close: pool.Close,
			}
		},
	}
}

package conformance

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/adapters/holdfastsqlx"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func everywhere(dbtest.Engine) bool { return true }

// SQL is the handle of database/sql.
func SQL() Handle[*sql.Tx] {
	return Handle[*sql.Tx]{Name: "sql", Runs: everywhere, Open: func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[*sql.Tx] {
		return SQLPool(tb, dbtest.OpenSQL(tb, dsn), opts...)
	}}
}

// Connected is the handle of database/sql with Holdfast's connector.
func Connected() Handle[*sql.Tx] {
	return Handle[*sql.Tx]{Name: "sql, connector", Runs: everywhere, Open: func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[*sql.Tx] {
		wrap := holdfastsql.Connector
		if strings.HasPrefix(dsn, "postgres") {
			wrap = holdfastpgx.Connector
		}
		return SQLPool(tb, dbtest.OpenConnector(tb, dsn, wrap), opts...)
	}}
}

// With returns h with a parameter added to the DSN on the named engines.
func With[Tx any](h Handle[Tx], param string, engines ...dbtest.Engine) Handle[Tx] {
	open := h.Open
	h.Name += "?" + param
	h.Runs = func(e dbtest.Engine) bool { return slices.Contains(engines, e) }
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[Tx] {
		return open(tb, dbtest.With(dsn, param), opts...)
	}
	return h
}

// Only returns h limited to the named engines.
func Only[Tx any](h Handle[Tx], engines ...dbtest.Engine) Handle[Tx] {
	h.Runs = func(e dbtest.Engine) bool { return slices.Contains(engines, e) }
	return h
}

// SQLPool opens Holdfast on a pool of the test.
func SQLPool(tb testing.TB, pool *sql.DB, opts ...holdfast.Options) Pool[*sql.Tx] {
	tb.Helper()
	db, err := holdfastsql.Open(tb.Context(), pool, Single(opts))
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

// Single returns the options of a handle with one owner, unless it is under row level security. A test that names
// owners asks the environment for many.
func Single(opts []holdfast.Options) (o holdfast.Options) {
	if len(opts) > 0 {
		o = opts[0]
	}
	o.SingleOwner = o.OwnerSetting == ""
	return o
}

func endStd(tx *sql.Tx, commit bool) error {
	if commit {
		return tx.Commit()
	}
	return tx.Rollback()
}

// SQLX is the handle of sqlx.
func SQLX() Handle[*sqlx.Tx] {
	return Handle[*sqlx.Tx]{Name: "sqlx", Runs: everywhere, Open: func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[*sqlx.Tx] {
		tb.Helper()
		name, _, err := dbtest.DriverDSN(dsn)
		if err != nil {
			tb.Fatal(err)
		}
		pool := sqlx.NewDb(dbtest.OpenSQL(tb, dsn), name)
		db, err := holdfastsqlx.Open(tb.Context(), pool, Single(opts))
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
		Open: func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[pgx.Tx] {
			tb.Helper()
			pool := dbtest.OpenPgx(tb, dsn)
			db, err := holdfastpgx.Open(tb.Context(), pool, Single(opts))
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

// Without returns a test context under which opened databases leave out the named admission
// rules.
func Without(tb testing.TB, rules ...string) testing.TB {
	return ruleless{tb, dialect.Without(tb.Context(), rules...)}
}

type ruleless struct {
	testing.TB
	ctx context.Context //nolint:containedctx // it is what a TB has
}

func (r ruleless) Context() context.Context { return r.ctx }

// One is the handle of database/sql with a pool of one connection, which keeps its session
// settings.
func One() Handle[*sql.Tx] {
	return Handle[*sql.Tx]{Name: "sql, one connection", Runs: everywhere, Open: func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[*sql.Tx] {
		pool := dbtest.OpenSQL(tb, dsn)
		pool.SetMaxOpenConns(1)
		return SQLPool(tb, pool, opts...)
	}}
}

// Bounced returns h with its pools behind PgBouncer in transaction mode.
func Bounced[Tx any](h Handle[Tx], mode string) Handle[Tx] {
	h = Only(h, dbtest.Postgres)
	open := h.Open
	h.Name += " behind PgBouncer"
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[Tx] {
		tb.Helper()
		return open(tb, dbtest.PgBouncer(tb, dsn, "transaction")+"&default_query_exec_mode="+mode, opts...)
	}
	return h
}

// Open opens another pool of the environment's handle.
func (e *Env[Tx]) Open(dsn string, opts ...holdfast.Options) Pool[Tx] {
	e.Helper()
	return e.Handle.Open(e.T, dsn, opts...)
}

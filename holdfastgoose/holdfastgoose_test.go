package holdfastgoose_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/holdfastgoose"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

var dialects = map[dbtest.Engine]goose.Dialect{
	dbtest.Postgres: goose.DialectPostgres, dbtest.MySQL: goose.DialectMySQL, dbtest.MariaDB: goose.DialectMySQL, dbtest.SQLite: goose.DialectSQLite3,
}

var files = fstest.MapFS{
	"00001_refunds.sql": {Data: []byte("-- +goose Up\nCREATE TABLE goose_refunds (id INTEGER PRIMARY KEY);\n")},
	"00002_payouts.sql": {Data: []byte("-- +goose Up\nCREATE TABLE goose_payouts (id INTEGER PRIMARY KEY);\n")},
}

// each opens one pool an engine; replica has the Locker of one program on it.
func each(t *testing.T, f func(t *testing.T, e dbtest.Engine, pool *sql.DB, replica func(t *testing.T) lock.Locker)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dsn := dbtest.DSN(t, e)
		if e.Like() == dbtest.MySQL {
			dsn = dbtest.With(dsn, "parseTime=true") // as goose asks for
		}
		pool := dbtest.OpenSQL(t, dsn)
		must(t, migrations.Up(t.Context(), pool))
		f(t, e, pool, func(t *testing.T) lock.Locker {
			t.Helper()
			return holdfastgoose.New(locks(t, pool), "goose", sqllock.AcquireOptions{TTL: time.Minute})
		})
	})
}

func locks(t *testing.T, pool *sql.DB) *sqllock.Locker[*sql.Tx] {
	t.Helper()
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
	must(t, err)
	l, err := sqllock.New(t.Context(), db)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close(context.Background())) })
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestForeignProviders is goose's own suite for lockers: five providers migrate at once, and one does it all.
func TestForeignProviders(t *testing.T) {
	each(t, func(t *testing.T, e dbtest.Engine, pool *sql.DB, replica func(t *testing.T) lock.Locker) {
		locktesting.TestProviderLocking(t, func(t *testing.T) *goose.Provider {
			t.Helper()
			p, err := goose.NewProvider(dialects[e], pool, files, goose.WithLocker(replica(t)))
			must(t, err)
			return p
		})
	})
}

// TestForeignConcurrent is the other one of goose's: of five lockers one has the lock, also past its context.
func TestForeignConcurrent(t *testing.T) {
	dbtest.OnlyNightly(t, "goose's suite gives a lock half a second, and holds it for one")
	each(t, func(t *testing.T, _ dbtest.Engine, pool *sql.DB, replica func(t *testing.T) lock.Locker) {
		locktesting.TestConcurrentLocking(t, pool, replica, 500*time.Millisecond)
	})
}

// TestLost takes the lease away during a migration: goose's call fails, and the next one begins anew.
func TestLost(t *testing.T) {
	each(t, func(t *testing.T, e dbtest.Engine, pool *sql.DB, replica func(t *testing.T) lock.Locker) {
		operator := locks(t, pool)
		away := goose.NewGoMigration(1, &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error {
			info, _, err := operator.Inspect(ctx, "goose")
			must(t, err)
			had, err := operator.ForceRelease(ctx, "goose", info.Token, holdfast.Actor{By: "test", Reason: "it hangs"})
			if !had {
				t.Error("no lease was held")
			}
			return err
		}}, nil)
		p, err := goose.NewProvider(dialects[e], pool, nil, goose.WithLocker(replica(t)), goose.WithGoMigrations(away))
		must(t, err)
		if _, err := p.Up(t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Up: %v, want ErrLost", err)
		}
		if done, err := p.Up(t.Context()); err != nil || len(done) != 0 {
			t.Errorf("a second Up: %v, %v", done, err)
		}
	})
}

// TestUse checks calls out of order, and a Lock that waits.
func TestUse(t *testing.T) {
	each(t, func(t *testing.T, _ dbtest.Engine, pool *sql.DB, replica func(t *testing.T) lock.Locker) {
		a, b := replica(t), replica(t)
		if err := a.Unlock(t.Context(), pool); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Unlock before Lock: %v", err)
		}
		must(t, a.Lock(t.Context(), pool))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.ErrUnsupported)
		if err := b.Lock(ctx, pool); !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, context.Canceled) {
			t.Errorf("Lock of a held one, until the context ends: %v", err)
		}
		must(t, a.Unlock(ctx, pool))
		must(t, b.Lock(t.Context(), pool))
		must(t, b.Unlock(t.Context(), pool))
	})
}

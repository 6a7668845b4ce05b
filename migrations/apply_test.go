package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// settings returns the statement that reads the session settings that applying changes, or might
// change.
func settings(e dbtest.Engine) string {
	switch e {
	case dbtest.Postgres:
		return `SELECT current_setting('lock_timeout') || current_setting('default_transaction_isolation') || current_setting('search_path')`
	case dbtest.MariaDB:
		return `SELECT CONCAT(@@lock_wait_timeout, ' ', @@autocommit, ' ', @@tx_isolation, ' ', DATABASE())`
	case dbtest.SQLite:
		return `SELECT busy_timeout || (SELECT foreign_keys FROM pragma_foreign_keys) FROM (SELECT timeout AS busy_timeout FROM pragma_busy_timeout)`
	}
	return `SELECT CONCAT(@@lock_wait_timeout, ' ', @@autocommit, ' ', @@transaction_isolation, ' ', DATABASE())`
}

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		// With one connection, code that kept its connection would block at the next line.
		pool.SetMaxOpenConns(1)
		before := scan[string](t, pool, settings(e))
		wantVersion(t, pool, 0)
		must(t, migrations.Down(t.Context(), pool))
		for range 2 {
			must(t, migrations.Up(t.Context(), pool))
			must(t, migrations.Up(t.Context(), pool))
			wantVersion(t, pool, migrations.Version)
			works(t, pool)
			must(t, migrations.Down(t.Context(), pool))
			must(t, migrations.Down(t.Context(), pool))
			wantVersion(t, pool, 0)
			for _, table := range []string{"holdfast_schema", "holdfast_records", "holdfast_migrations"} {
				if _, err := pool.ExecContext(t.Context(), `SELECT 1 FROM `+table); err == nil {
					t.Errorf("%s is still there", table)
				}
			}
		}
		if after := scan[string](t, pool, settings(e)); after != before {
			t.Errorf("settings were %s and are %s", before, after)
		}
	})
}

// TestOptionsOfOpen checks that the options match those with which the pool is opened.
func TestOptionsOfOpen(t *testing.T) {
	t.Parallel()
	pool, seen := dbtest.OpenSQL(t, dbtest.DSN(t, dbtest.SQLite)), 0
	open := holdfast.Options{Observers: []holdfast.Observer{func(context.Context, holdfast.Statement) { seen++ }}}
	must(t, migrations.Up(t.Context(), pool, open))
	if seen == 0 {
		t.Error("the observer has seen nothing")
	}
	wrong := holdfast.Options{Engine: "oracle"}
	if err := migrations.Down(t.Context(), pool, wrong); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	wantVersion(t, pool, migrations.Version)
}

func TestPrefixesStandSideBySide(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		long := strings.Repeat("P", 32)
		prefixes := []string{core.DefaultPrefix, holdfast.NoPrefix, long, "other_"}
		for _, p := range prefixes {
			must(t, migrations.Up(t.Context(), pool, holdfast.Options{Prefix: p}))
			works(t, pool, holdfast.Options{Prefix: p})
		}
		must(t, migrations.Down(t.Context(), pool, holdfast.Options{Prefix: long}))
		must(t, migrations.Down(t.Context(), pool, holdfast.Options{Prefix: holdfast.NoPrefix}))
		works(t, pool)
		works(t, pool, holdfast.Options{Prefix: "other_"})
	})
}

func TestSchemaOfChoice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dbtest.Needs(t, e, dbtest.AnySchemaName)
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		schema, quoted := "odd ; -- name", ""
		pool.SetMaxOpenConns(1) // SQLite attaches a database to one connection
		switch e {
		case dbtest.Postgres:
			schema = scan[string](t, pool, `SELECT current_schema()`) + ` "; -- odd`
			quoted = `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
			run(t, pool, `CREATE SCHEMA `+quoted)
			t.Cleanup(func() { cleanup(t, pool, `DROP SCHEMA `+quoted+` CASCADE`) })
		case dbtest.SQLite:
			schema += `"`
			quoted = `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
			run(t, pool, `ATTACH '`+t.TempDir()+`/other.db' AS `+quoted)
		default:
			schema = scan[string](t, pool, `SELECT DATABASE()`) + " `; -- odd"
			quoted = "`" + strings.ReplaceAll(schema, "`", "``") + "`"
			run(t, pool, `CREATE DATABASE `+quoted)
			// Applying closes its connection, so the cleanup runs on another one.
			t.Cleanup(func() { cleanup(t, pool, `DROP DATABASE `+quoted) })
		}
		opt := holdfast.Options{Schema: schema}
		must(t, migrations.Up(t.Context(), pool, opt))
		wantVersion(t, pool, migrations.Version, opt)
		wantVersion(t, pool, 0)
		works(t, pool, holdfast.Options{Schema: schema})
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.Down(t.Context(), pool, opt))
		wantVersion(t, pool, 0, opt)
		works(t, pool)
	})
}

func TestNativePool(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return
		}
		pool := dbtest.OpenPgx(t, dbtest.DSN(t, e))
		db := stdlib.OpenDBFromPool(pool)
		must(t, migrations.Up(t.Context(), db))
		must(t, db.Close())
		_, err := pool.Exec(t.Context(), `SELECT * FROM holdfast_records`)
		must(t, err)
	})
}

// If a process dies during a migration, its version stays dirty where DDL commits implicitly.
func TestWhatWasCutOffIsRepeated(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		for _, version := range []int{1, database.NilVersion} {
			for _, lost := range []string{"", "records", "schema"} {
				for _, down := range []bool{false, true} {
					must(t, migrations.Up(t.Context(), pool))
					run(t, pool, fmt.Sprintf(`UPDATE holdfast_migrations SET version = %d, dirty = true`, version))
					if lost != "" {
						run(t, pool, `DROP TABLE holdfast_`+lost)
					}
					if down {
						must(t, migrations.Down(t.Context(), pool))
						wantVersion(t, pool, 0)
						continue
					}
					must(t, migrations.Up(t.Context(), pool))
					wantVersion(t, pool, migrations.Version)
					works(t, pool)
				}
			}
		}
	})
}

func TestCopiedSQLIsTaken(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		for statement := range strings.SplitSeq(printed(t, holdfast.Engine(e)), ";\n") {
			if strings.TrimSpace(statement) != "" {
				run(t, pool, statement)
			}
		}
		works(t, pool)
		must(t, migrations.Up(t.Context(), pool))
		works(t, pool)
	})
}

func TestNewerTablesAreLeft(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		must(t, migrations.Up(t.Context(), pool))
		run(t, pool, `UPDATE holdfast_migrations SET version = 99`)
		must(t, migrations.Up(t.Context(), pool))
		if err := migrations.Down(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Errorf("down: %v", err)
		}
		wantVersion(t, pool, 99)
	})
}

func TestContextEndsTheWait(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		release := holdLock(t, e, pool)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := migrations.Up(ctx, pool)
		// A dial knows the deadline and may end just before the context.
		if took := time.Since(start); err == nil || took < 290*time.Millisecond || took > dbtest.Slack {
			t.Errorf("up under the lock of another: %v after %v", err, took)
		}
		release()
		must(t, migrations.Up(t.Context(), pool))
		works(t, pool)
	})
}

// A context that ends at any point leaves nothing that a later Up cannot repair.
func TestContextEndsAnywhere(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*700*time.Microsecond)
			err := migrations.Up(ctx, pool)
			// A dial has the same deadline and may end just before the context.
			if late := net.Error(nil); err != nil && ctx.Err() == nil && (!errors.As(err, &late) || !late.Timeout()) {
				t.Fatal(err)
			}
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
			_ = migrations.Down(ctx, pool)
			cancel()
		}
		must(t, migrations.Up(t.Context(), pool))
		works(t, pool)
	})
}

// holdLock takes the lock that golang-migrate's own drivers take.
func holdLock(t *testing.T, e dbtest.Engine, pool *sql.DB) (release func()) {
	t.Helper()
	conn, err := pool.Conn(t.Context())
	must(t, err)
	var take, give string
	switch e {
	case dbtest.Postgres:
		id, err := database.GenerateAdvisoryLockId(scan[string](t, pool, `SELECT current_database()`),
			scan[string](t, pool, `SELECT current_schema()`), "holdfast_migrations")
		must(t, err)
		take, give = `SELECT pg_advisory_lock(`+id+`)`, `SELECT pg_advisory_unlock(`+id+`)`
	case dbtest.SQLite:
		take, give = `BEGIN IMMEDIATE`, `ROLLBACK`
	default:
		id := mysqlLock(t, pool)
		take, give = `SELECT GET_LOCK('`+id+`', 10)`, `SELECT RELEASE_LOCK('`+id+`')`
	}
	_, err = conn.ExecContext(t.Context(), take)
	must(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), give)
		must(t, errors.Join(err, conn.Close()))
	}
}

// mysqlLock returns the name of that lock on MySQL and its kin.
func mysqlLock(t *testing.T, pool *sql.DB) string {
	t.Helper()
	id, err := database.GenerateAdvisoryLockId(scan[string](t, pool, `SELECT DATABASE()`) + ":holdfast_migrations")
	must(t, err)
	return id
}

// works checks that Holdfast accepts the tables and that they record one version.
func works(t *testing.T, pool *sql.DB, opts ...holdfast.Options) {
	t.Helper()
	db, err := holdfastsql.Open(t.Context(), pool, opts...)
	must(t, err)
	must(t, db.CheckSchema(t.Context()))
	access := access.Of(db)
	if n := scan[int](t, pool, `SELECT COUNT(*) FROM `+access.Table("schema")); n != 1 {
		t.Errorf("%d versions in %s", n, access.Table("schema"))
	}
	if n := scan[int](t, pool, `SELECT COUNT(*) FROM `+access.Table("records")+` WHERE result_expires_at > 0 OR key_expires_at > 0`); n != 0 {
		t.Errorf("%d records", n)
	}
}

func wantVersion(t *testing.T, pool *sql.DB, want int, opts ...holdfast.Options) {
	t.Helper()
	if got, dirty, err := migrations.Applied(t.Context(), pool, opts...); err != nil || dirty || got != want {
		t.Errorf("version %d (dirty: %t), %v; want %d", got, dirty, err, want)
	}
}

func scan[T any](t *testing.T, pool *sql.DB, query string) (value T) {
	t.Helper()
	must(t, pool.QueryRowContext(t.Context(), query).Scan(&value))
	return value
}

func run(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()
	if _, err := pool.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%.80s: %v", statement, err)
	}
}

func cleanup(t *testing.T, pool *sql.DB, statement string) {
	t.Helper()
	if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A reader delays a DROP only for as long as it reads.
func TestDownWaitsForReaders(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		must(t, migrations.Up(t.Context(), pool))
		tx, err := pool.BeginTx(t.Context(), nil)
		must(t, err)
		var n int
		must(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM holdfast_records`).Scan(&n))
		done := make(chan error, 1)
		go func() { done <- migrations.Down(t.Context(), pool) }()
		time.Sleep(3 * time.Second) // longer than the bound of one attempt
		must(t, tx.Commit())
		must(t, <-done)
		wantVersion(t, pool, 0)
		if err := pool.PingContext(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

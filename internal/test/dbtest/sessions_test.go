package dbtest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestKeptSession checks that a prepared database's sessions are used again, as new ones are: without
// settings, prepared statements, temporary tables or locks.
func TestKeptSession(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // sessions of the others are threads
		}
		url, _ := dbtest.Prepared(t, e, "kept", func(*sql.DB) {})
		was := dbtest.OpenSQL(t, url)
		exec(t, was, `SET lock_timeout = '7s'`)
		exec(t, was, `CREATE TEMPORARY TABLE holdfast_left (n INT)`)
		exec(t, was, `SELECT pg_advisory_lock(815)`)
		pid := text(t, was, `SELECT pg_backend_pid()`)
		if err := was.Close(); err != nil {
			t.Fatal(err)
		}

		is := dbtest.OpenSQL(t, url+"&default_query_exec_mode=simple_protocol")
		if got := text(t, is, `SELECT pg_backend_pid()`); got != pid {
			t.Errorf("session %s, then %s", pid, got)
		}
		if got := text(t, is, `SELECT current_setting('lock_timeout') || current_setting('search_path')`); got != "0"+text(t, is, `SELECT current_schema()`) {
			t.Errorf("lock_timeout and search_path are %s", got)
		}
		if got := text(t, is, `SELECT count(*) FROM pg_class WHERE relname = 'holdfast_left'`); got != "0" {
			t.Error("the temporary table is there")
		}
		if got := text(t, is, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 815`); got != "0" {
			t.Error("the lock is there")
		}
		native := dbtest.OpenPgx(t, url)
		if _, err := native.Exec(t.Context(), `SELECT 1`); err != nil {
			t.Error(err)
		}
	})
}

// TestKeptSessionOfSerializable checks that the end of a test leaves a kept session alone that has
// committed there at SERIALIZABLE. Its predicate locks stay until the transactions that ran at the
// same time have ended, when the session may be another test's.
func TestKeptSessionOfSerializable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // as above
		}
		tables := func(db *sql.DB) { exec(t, db, `CREATE TABLE read_rows (n INT)`) }
		url, _ := dbtest.Prepared(t, e, "serializable", tables)
		begin := func(t *testing.T, db *sql.DB) *sql.Tx {
			t.Helper()
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), `SELECT * FROM read_rows`); err != nil {
				t.Fatal(err)
			}
			return tx
		}
		other := dbtest.OpenSQL(t, url)
		open := begin(t, other)
		defer func() { _ = open.Rollback() }()
		var pid string
		t.Run("reads", func(t *testing.T) {
			url, _ := dbtest.Prepared(t, e, "serializable", tables)
			pool := dbtest.OpenSQL(t, url)
			pid = text(t, pool, `SELECT pg_backend_pid()`)
			tx := begin(t, pool)
			if _, err := tx.ExecContext(t.Context(), `INSERT INTO read_rows VALUES (1)`); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if got := text(t, other, `SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = `+pid); got == "0" {
				t.Error("no predicate lock is left")
			}
		})
		pool := dbtest.OpenSQL(t, url)
		if got := text(t, pool, `SELECT pg_backend_pid()`); got != pid {
			t.Errorf("session %s, then %s", pid, got)
		}
	})
}

// TestBrokenSessionIsNotKept checks that a session that a client left in a statement or a
// transaction ends, and that a kept session can be cancelled.
func TestBrokenSessionIsNotKept(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // as above
		}
		url, audit := dbtest.Prepared(t, e, "kept", func(*sql.DB) {})
		gone := func(pid string) {
			t.Helper()
			dbtest.Eventually(t, "the session ends", func() bool {
				return text(t, audit, `SELECT count(*) FROM pg_stat_activity WHERE pid = `+pid) == "0"
			})
		}

		pool := dbtest.OpenSQL(t, url)
		pid := text(t, pool, `SELECT pg_backend_pid()`)
		exec(t, pool, `BEGIN`)
		if err := pool.Close(); err != nil {
			t.Fatal(err)
		}
		gone(pid)

		pool = dbtest.OpenSQL(t, url)
		pid = text(t, pool, `SELECT pg_backend_pid()`)
		if err := pool.Close(); err != nil {
			t.Fatal(err)
		}
		exec(t, audit, `SELECT pg_terminate_backend(`+pid+`)`) // while it is kept
		gone(pid)

		pool = dbtest.OpenSQL(t, url)
		pid = text(t, pool, `SELECT pg_backend_pid()`)
		if err := pool.Close(); err != nil {
			t.Fatal(err)
		}
		pool = dbtest.OpenSQL(t, url)
		if got := text(t, pool, `SELECT pg_backend_pid()`); got != pid {
			t.Errorf("session %s, then %s", pid, got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := pool.ExecContext(ctx, `SELECT pg_sleep(600)`)
			done <- err
		}()
		dbtest.Eventually(t, "the statement runs", func() bool {
			return text(t, audit, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid = `+pid) == "1"
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) && !pgconn.Timeout(err) {
			t.Errorf("%v", err)
		}
		gone(pid)
	})
}

func text(t *testing.T, db *sql.DB, query string) (s string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&s); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return s
}

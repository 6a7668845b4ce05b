package dbtest_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		for range 2 { // the same table twice works only in two databases
			db := dbtest.OpenSQL(t, dbtest.DSN(t, e))
			exec(t, db, "CREATE TABLE twin (id INTEGER PRIMARY KEY)")
			exec(t, db, "INSERT INTO twin VALUES (1)")
		}
	})
}

func TestDatabaseIsDropped(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		var dsn string
		t.Run("inner", func(t *testing.T) {
			dsn = dbtest.DSN(t, e)
			exec(t, dbtest.OpenSQL(t, dsn), "CREATE TABLE gone (id INTEGER PRIMARY KEY)")
		})
		if e == dbtest.SQLite {
			if _, err := os.Stat(strings.TrimPrefix(dsn, "sqlite://")); !os.IsNotExist(err) {
				t.Errorf("the file is still there: %v", err)
			}
			return
		}
		db := dbtest.OpenSQL(t, dsn)
		if _, err := db.ExecContext(t.Context(), "SELECT * FROM gone"); err == nil {
			t.Error("the table is still there")
		}
	})
}

// A client that a test froze keeps its transaction and its locks forever.
func TestDropEndsSessionsLeftBehind(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			return // it has no sessions
		}
		// The pool outlives the inner test, so its session remains.
		var db *sql.DB
		var tx *sql.Tx
		t.Run("inner", func(inner *testing.T) {
			db = dbtest.OpenSQL(t, dbtest.DSN(inner, e))
			exec(inner, db, "CREATE TABLE held (id INTEGER PRIMARY KEY)")
			var err error
			if tx, err = db.BeginTx(t.Context(), nil); err != nil {
				inner.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO held VALUES (1)"); err != nil {
				inner.Fatal(err)
			}
		})
		if err := tx.Commit(); err == nil {
			t.Error("the session that held the table is still alive")
		}
		if _, err := db.ExecContext(t.Context(), "SELECT * FROM held"); err == nil {
			t.Error("the table is still there")
		}
	})
}

func TestOpenPgxUsesTheSchema(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return
		}
		dsn := dbtest.DSN(t, e)
		exec(t, dbtest.OpenSQL(t, dsn), "CREATE TABLE here (id INTEGER PRIMARY KEY)")
		if _, err := dbtest.OpenPgx(t, dsn).Exec(t.Context(), "SELECT * FROM here"); err != nil {
			t.Error(err)
		}
	})
}

func TestDriverDSN(t *testing.T) {
	t.Parallel()
	driver, dsn, err := dbtest.DriverDSN("mysql://u:p@tcp(h:3306)/db")
	if err != nil || driver != "mysql" || dsn != "u:p@tcp(h:3306)/db" {
		t.Errorf("got %q, %q, %v", driver, dsn, err)
	}
	if _, _, err := dbtest.DriverDSN("oracle://x"); err == nil {
		t.Error("no error")
	}
}

func TestMarkerTellsWhatRan(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("HOLDFAST_TEST_RAN_DIR")
	if dir == "" {
		t.Log("HOLDFAST_TEST_RAN_DIR is not set, as it is under `make test`")
		return
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dbtest.DSN(t, e)
		version, err := os.ReadFile(filepath.Join(dir, string(e)))
		if err != nil || !strings.Contains(string(version), ".") {
			t.Errorf("%q, %v", version, err)
		}
	})
}

func exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

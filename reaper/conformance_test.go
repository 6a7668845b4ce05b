package reaper_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func suites[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Run("Records", func(t *testing.T) { t.Parallel(); conformance.Reaper(t, h) })
	t.Run("Locks", func(t *testing.T) { t.Parallel(); conformance.ReaperLocks(t, h) })
	t.Run("History", func(t *testing.T) { t.Parallel(); conformance.ReaperHistory(t, h) })
	t.Run("Tables", func(t *testing.T) { t.Parallel(); conformance.ReaperTables(t, h) })
	t.Run("Lines", func(t *testing.T) { t.Parallel(); conformance.ReaperLines(t, h) })
}

func TestSQL(t *testing.T)  { t.Parallel(); suites(t, conformance.SQL()) }
func TestSQLX(t *testing.T) { t.Parallel(); suites(t, conformance.SQLX()) }
func TestPgx(t *testing.T)  { t.Parallel(); suites(t, conformance.Pgx()) }

// The settings of the drivers that change what goes over the wire.

func TestMySQLInterpolatedFoundRows(t *testing.T) {
	t.Parallel()
	suites(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestPgxSimpleProtocol(t *testing.T) {
	t.Parallel()
	suites(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

func TestPgxExec(t *testing.T) {
	t.Parallel()
	suites(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=exec", dbtest.Postgres))
}

func TestLargeTable(t *testing.T) { t.Parallel(); conformance.ReaperLargeTable(t, conformance.SQL()) }

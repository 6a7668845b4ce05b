package reaper_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/reaper"
)

func suites[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	t.Run("Records", func(t *testing.T) { t.Parallel(); reaper.Records(t, h) })
	t.Run("Locks", func(t *testing.T) { t.Parallel(); reaper.Locks(t, h) })
	t.Run("History", func(t *testing.T) { t.Parallel(); reaper.History(t, h) })
	t.Run("Tables", func(t *testing.T) { t.Parallel(); reaper.Tables(t, h) })
	t.Run("Lines", func(t *testing.T) { t.Parallel(); reaper.Lines(t, h) })
}

func TestSweep(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: suites[*sql.Tx], SQLX: suites[*sqlx.Tx], Pgx: suites[pgx.Tx]})
}

func TestLargeTable(t *testing.T) { t.Parallel(); reaper.LargeTable(t, conformance.SQL()) }

package optimistic_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/optimistic"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func rows[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	optimistic.Suite(t, h)
}

// TestRows also runs with clientFoundRows, which changes the meaning of "affected rows".
func TestRows(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: rows[*sql.Tx], SQLX: rows[*sqlx.Tx], Pgx: rows[pgx.Tx]}, "MySQLFoundRows")
}

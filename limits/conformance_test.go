package limits_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/limits"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func TestLimits(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: limits.Suite[*sql.Tx], SQLX: limits.Suite[*sqlx.Tx], Pgx: limits.Suite[pgx.Tx]}, "Connector", "MySQLFoundRows")
}

func TestLimitsWithinOperations(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: limits.Operations[*sql.Tx], SQLX: limits.Operations[*sqlx.Tx], Pgx: limits.Operations[pgx.Tx]},
		"SQL", "Connector", "Pgx")
}

func TestLimitStorms(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: limits.Storms[*sql.Tx], SQLX: limits.Storms[*sqlx.Tx], Pgx: limits.Storms[pgx.Tx]}, "SQL", "Pgx")
}

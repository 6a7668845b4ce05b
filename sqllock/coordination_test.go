package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

func TestCoordination(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{
		SQL: conformance.Coordination[*sql.Tx], SQLX: conformance.Coordination[*sqlx.Tx], Pgx: conformance.Coordination[pgx.Tx],
	})
}

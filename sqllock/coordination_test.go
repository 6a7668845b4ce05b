package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/leases"
)

func TestCoordination(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{
		SQL: leases.Coordination[*sql.Tx], SQLX: leases.Coordination[*sqlx.Tx], Pgx: leases.Coordination[pgx.Tx],
	})
}

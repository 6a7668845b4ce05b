package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/operations"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// The timeouts that a server, a role or a DSN sets.

func TestTimeouts(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: operations.Timeouts[*sql.Tx], SQLX: operations.Timeouts[*sqlx.Tx], Pgx: operations.Timeouts[pgx.Tx]}, "SQL", "Pgx")
}

func TestRefusedSQL(t *testing.T) { t.Parallel(); operations.Refused(t, conformance.One()) }
func TestRefusedPgx(t *testing.T) {
	t.Parallel()
	operations.Refused(t, conformance.With(conformance.Pgx(), "pool_max_conns=1", dbtest.Postgres))
}

package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// TestInjection uses names that contain SQL, with drivers that bind parameters on the server
// and with drivers that write the values into the statement.
func TestInjection(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: conformance.Injection[*sql.Tx], SQLX: conformance.Injection[*sqlx.Tx], Pgx: conformance.Injection[pgx.Tx]}, "SQL", "MySQLInterpolated", "PgxSimpleProtocol")
}

func TestTenantsSQL(t *testing.T) { t.Parallel(); conformance.Tenants(t, conformance.SQL()) }

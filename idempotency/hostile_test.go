package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
)

// TestInjection uses names that contain SQL, with drivers that bind parameters on the server
// and with drivers that write the values into the statement.
func TestInjection(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: hostile.Injection[*sql.Tx], SQLX: hostile.Injection[*sqlx.Tx], Pgx: hostile.Injection[pgx.Tx]}, "SQL", "MySQLInterpolated", "PgxSimpleProtocol")
}

func TestOwnersSQL(t *testing.T) { t.Parallel(); hostile.Owners(t, conformance.SQL()) }

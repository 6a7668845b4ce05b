package staged_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

func TestStaged(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: conformance.Staged[*sql.Tx], SQLX: conformance.Staged[*sqlx.Tx], Pgx: conformance.Staged[pgx.Tx]})
}

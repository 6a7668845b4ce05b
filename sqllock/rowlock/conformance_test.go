package rowlock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

func TestRowLocks(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: conformance.RowLocks[*sql.Tx], SQLX: conformance.RowLocks[*sqlx.Tx], Pgx: conformance.RowLocks[pgx.Tx]})
}

func TestHold(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{SQL: conformance.Hold[*sql.Tx], SQLX: conformance.Hold[*sqlx.Tx], Pgx: conformance.Hold[pgx.Tx]})
}

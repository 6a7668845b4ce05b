package rowlock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/rowlocks"
)

func TestRowLocks(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: rowlocks.Suite[*sql.Tx], SQLX: rowlocks.Suite[*sqlx.Tx], Pgx: rowlocks.Suite[pgx.Tx]}, "Connector")
}

func TestHold(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{SQL: rowlocks.SessionLocks[*sql.Tx], SQLX: rowlocks.SessionLocks[*sqlx.Tx], Pgx: rowlocks.SessionLocks[pgx.Tx]})
}

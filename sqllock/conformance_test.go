package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

func TestLeases(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: conformance.Leases[*sql.Tx], SQLX: conformance.Leases[*sqlx.Tx], Pgx: conformance.Leases[pgx.Tx]}, "SQLXInterpolated")
}

func TestReleases(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{SQL: conformance.Releases[*sql.Tx], SQLX: conformance.Releases[*sqlx.Tx], Pgx: conformance.Releases[pgx.Tx]})
}

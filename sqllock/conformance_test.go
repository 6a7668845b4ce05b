package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/leases"
)

func TestLeases(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: leases.Suite[*sql.Tx], SQLX: leases.Suite[*sqlx.Tx], Pgx: leases.Suite[pgx.Tx]}, "Connector")
}

func TestReleases(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{SQL: leases.Releases[*sql.Tx], SQLX: leases.Releases[*sqlx.Tx], Pgx: leases.Releases[pgx.Tx]})
}

func TestHandles(t *testing.T) {
	t.Parallel()
	conformance.Handles(t, conformance.Suite{SQL: leases.Handles[*sql.Tx], SQLX: leases.Handles[*sqlx.Tx], Pgx: leases.Handles[pgx.Tx]})
}

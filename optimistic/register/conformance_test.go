package register_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/optimistic"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{
		SQL: optimistic.Register[*sql.Tx], SQLX: optimistic.Register[*sqlx.Tx], Pgx: optimistic.Register[pgx.Tx],
	}, "MySQLFoundRows")
}

package idempotency_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func staged[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Parallel()
	conformance.Staged(t, h)
}

func TestStagedSQL(t *testing.T)  { staged(t, conformance.SQL()) }
func TestStagedSQLX(t *testing.T) { staged(t, conformance.SQLX()) }
func TestStagedPgx(t *testing.T)  { staged(t, conformance.Pgx()) }

func TestStagedMySQLInterpolatedFoundRows(t *testing.T) {
	staged(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestStagedPgxSimpleProtocol(t *testing.T) {
	staged(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

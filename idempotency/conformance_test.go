package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/internal/test/conformance/operations"
)

// records runs every suite of the records and the business rows on one handle.
func records[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	operations.Suite(t, h)
	operations.Lost(t, h)
	operations.BusinessRows(t, h)
	operations.Batches(t, h)
	operations.DoTx(t, h)
	operations.Nested(t, h)
	operations.Flights(t, h)
	operations.Unsent(t, h)
	operations.Rejections(t, h)
	operations.Refusals(t, h)
	operations.Ceilings(t, h)
	hostile.Input(t, h)
	operations.Results(t, h)
	operations.Executors(t, h)
	operations.Blockers(t, h)
	operations.Similar(t, h)
	operations.Twins(t, h)
	operations.Voids(t, h)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: records[*sql.Tx], SQLX: records[*sqlx.Tx], Pgx: records[pgx.Tx]}, "Connector", "ConnectorInterpolated")
}

package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// records runs every suite of the records and the business rows on one handle.
func records[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	conformance.Idempotency(t, h)
	conformance.Lost(t, h)
	conformance.Rows(t, h)
	conformance.Batch(t, h)
	conformance.DoTx(t, h)
	conformance.Nested(t, h)
	conformance.Flights(t, h)
	conformance.Unsent(t, h)
	conformance.Rejections(t, h)
	conformance.Input(t, h)
	conformance.Results(t, h)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: records[*sql.Tx], SQLX: records[*sqlx.Tx], Pgx: records[pgx.Tx]})
}

package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/taken"
)

// TestTakenAway takes a table, a column and a right away under every call that waits or works in the
// background.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: taken.Suite[*sql.Tx], Pgx: taken.Suite[pgx.Tx]}, "SQL", "Pgx")
}

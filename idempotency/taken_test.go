package idempotency_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/taken"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestTakenAway takes a table, a column and a right away under every call that waits or works in the
// background.
func TestTakenAway(t *testing.T) {
	dbtest.NotUnderRace(t, "all calls at once are too slow for it: leases end before their renewals are answered")
	t.Parallel()
	conformance.InModes(t, conformance.Suite{SQL: taken.Suite[*sql.Tx], Pgx: taken.Suite[pgx.Tx]}, "SQL", "Pgx")
}

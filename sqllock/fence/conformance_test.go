package fence_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/fences"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

func TestFences(t *testing.T) {
	t.Parallel()
	// The triggers are the same for each handle.
	conformance.InModes(t, conformance.Suite{SQL: fences.Suite[*sql.Tx], SQLX: fences.Suite[*sqlx.Tx], Pgx: fences.Suite[pgx.Tx]}, "SQL", "Pgx")
}

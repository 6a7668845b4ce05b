package staged_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/staged"
)

func TestStaged(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: staged.Suite[*sql.Tx], SQLX: staged.Suite[*sqlx.Tx], Pgx: staged.Suite[pgx.Tx]})
}

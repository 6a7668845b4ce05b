package outbox_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/outboxes"
)

func TestOutbox(t *testing.T) {
	t.Parallel()
	conformance.Modes(t, conformance.Suite{SQL: outboxes.Suite[*sql.Tx], SQLX: outboxes.Suite[*sqlx.Tx], Pgx: outboxes.Suite[pgx.Tx]}, "MySQLFoundRows")
}

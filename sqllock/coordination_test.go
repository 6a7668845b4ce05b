package sqllock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
)

func TestCoordinationSQL(t *testing.T) {
	t.Parallel()
	conformance.Coordination(t, conformance.SQL())
}

func TestCoordinationSQLX(t *testing.T) {
	t.Parallel()
	conformance.Coordination(t, conformance.SQLX())
}

func TestCoordinationPgx(t *testing.T) {
	t.Parallel()
	conformance.Coordination(t, conformance.Pgx())
}

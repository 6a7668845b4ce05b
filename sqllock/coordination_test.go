package sqllock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
)

func TestCoordinationSQL(t *testing.T) {
	t.Parallel()
	conformance.Coordination(t, conformance.SQL())
	conformance.Hold(t, conformance.SQL())
}

func TestCoordinationSQLX(t *testing.T) {
	t.Parallel()
	conformance.Coordination(t, conformance.SQLX())
	conformance.Hold(t, conformance.SQLX())
}

func TestCoordinationPgx(t *testing.T) {
	t.Parallel()
	conformance.Coordination(t, conformance.Pgx())
	conformance.Hold(t, conformance.Pgx())
}

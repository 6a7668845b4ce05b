package sqllock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

func rowLocks[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Parallel()
	conformance.RowLocks(t, h)
}

func TestRowLocksSQL(t *testing.T)  { rowLocks(t, conformance.SQL()) }
func TestRowLocksSQLX(t *testing.T) { rowLocks(t, conformance.SQLX()) }
func TestRowLocksPgx(t *testing.T)  { rowLocks(t, conformance.Pgx()) }

func TestRowLocksMySQLInterpolatedFoundRows(t *testing.T) {
	rowLocks(t, conformance.With(conformance.SQL(), "interpolateParams=true&clientFoundRows=true", dbtest.MySQL, dbtest.MariaDB))
}

func TestRowLocksPgxSimpleProtocol(t *testing.T) {
	rowLocks(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

func TestRowLocksPgxExec(t *testing.T) {
	rowLocks(t, conformance.With(conformance.Pgx(), "default_query_exec_mode=exec", dbtest.Postgres))
}

func TestRowLocksStdlibSimpleProtocol(t *testing.T) {
	rowLocks(t, conformance.With(conformance.SQL(), "default_query_exec_mode=simple_protocol", dbtest.Postgres))
}

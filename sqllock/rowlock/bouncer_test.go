package rowlock_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/conformance/rowlocks"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestPgBouncerRowLocksSimpleProtocol(t *testing.T) {
	dbtest.NotUnderRace(t, "its memory is that of the other handles")
	t.Parallel()
	rowlocks.Suite(t, conformance.Bounced(conformance.SQL(), "simple_protocol"))
}

func TestPgBouncerRowLocksPgxExec(t *testing.T) {
	dbtest.NotUnderRace(t, "its memory is that of the other handles")
	t.Parallel()
	rowlocks.Suite(t, conformance.Bounced(conformance.Pgx(), "exec"))
}

func TestPgBouncerRowLocksPrepared(t *testing.T) {
	dbtest.NotUnderRace(t, "its memory is that of the other handles")
	dbtest.NeedsPreparingBouncer(t)
	t.Parallel()
	rowlocks.Suite(t, conformance.Bounced(conformance.Pgx(), "cache_statement"))
}

func TestPgBouncerHold(t *testing.T) {
	t.Parallel()
	rowlocks.SessionLocks(t, conformance.Bounced(conformance.SQL(), "simple_protocol"))
	rowlocks.SessionLocks(t, conformance.Bounced(conformance.Pgx(), "exec"))
}

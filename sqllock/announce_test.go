package sqllock_test

import (
	"database/sql"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPollsBesideAnnouncements checks that a waiter whose row cannot be written now goes on reading its
// lock: the process that has it may leave it free for a moment only. Not on SQLite, where a release waits
// for the same writer.
func TestPollsBesideAnnouncements(t *testing.T) {
	t.Parallel()
	for _, engine := range []dbtest.Engine{dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB} {
		count := &counter{n: map[string]int{}}
		conformance.Run(t, conformance.Only(conformance.SQL(), engine), func(e *conformance.Env[*sql.Tx]) { pollsBesideAnnouncements(e, count) },
			holdfast.Options{Observers: []holdfast.Observer{count.observe}})
	}
}

func pollsBesideAnnouncements(e *conformance.Env[*sql.Tx], count *counter) {
	block, level := `SELECT COUNT(*) FROM holdfast_waiters FOR UPDATE`, sql.LevelRepeatableRead
	if e.Engine == dbtest.Postgres {
		block, level = `LOCK TABLE holdfast_waiters IN SHARE MODE`, sql.LevelDefault
	}
	one, two := e.Locker(), e.Locker()
	lease := e.MustAcquire(one, "key")
	tx := e.BeginTx(level)
	defer e.EndTx(tx, false)
	_, err := e.Exec(e.Ctx, tx, block)
	e.Check(err)
	session := e.SessionOf(tx)
	granted := make(chan *sqllock.Lease, 1)
	go func() {
		lease, err := two.Acquire(e.Ctx, "key")
		e.Check(err)
		granted <- lease
	}()
	e.Eventually("the waiter's row is being written", func() bool {
		blocks, err := doctor.Blocked(e.Ctx, e.DB)
		e.Check(err)
		return slices.ContainsFunc(blocks, func(b doctor.Block) bool { return b.Blocker.Session == session })
	})
	e.MustRelease(lease)
	lease = <-granted
	if n := count.of("locks.announce"); n != 0 {
		e.Errorf("the call had its lock only after its row had been written, or given up %d times", n)
	}
	e.MustRelease(lease)
}

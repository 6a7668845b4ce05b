package rowlocks

import (
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// blockersOf returns those whom the error of a timeout names.
func blockersOf(err error) ([]holdfast.Blocker, error) {
	var late *rowlock.TimeoutError
	if err != nil && !errors.As(err, &late) {
		return nil, errors.Join(errors.New("not a timeout"), err)
	}
	if late == nil {
		return nil, nil
	}
	return late.Blockers, err
}

// namesBlockers checks that the error of a wait that is over names the session that has the lock, of a
// key and of a row, and that the transaction goes on.
func namesBlockers[Tx any](e *env[Tx]) {
	l, rows := e.RowLocker(), e.lockable("a")
	holder := e.BeginTx(sql.LevelDefault)
	for _, err := range []error{
		l.LockTx(e.Ctx, holder, "k", holdfast.Forever),
		first(rows.LockTx(e.Ctx, holder, holdfast.Forever, named("a")...)),
	} {
		e.Check(err)
	}
	session := ""
	if e.DB.Capabilities().NamesBlockers {
		session = e.SessionOf(holder)
	}
	tx := e.BeginTx(sql.LevelReadCommitted) // it goes on after another one's commit
	for _, most := range []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond} {
		e.WantBlocker("key", session, func() ([]holdfast.Blocker, error) {
			return blockersOf(l.LockTx(e.Ctx, tx, "k", most))
		})
		e.WantBlocker("row", session, func() ([]holdfast.Blocker, error) {
			return blockersOf(first(rows.LockTx(e.Ctx, tx, most, named("a")...)))
		})
	}
	e.EndTx(holder, true)
	e.Check(l.LockTx(e.Ctx, tx, "k", dbtest.Hang))
	e.Check(e.Effect(e.Ctx, tx, "goes on"))
	e.EndTx(tx, true)
	e.WantOnce("goes on")
}

// namesNobodyUnseen waits as a role that may not see who blocks: the wait ends as if the engine could
// not tell. PostgreSQL shows every role the number of the session, and not what it does.
func namesNobodyUnseen[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no users
	}
	holder := e.BeginTx(sql.LevelDefault)
	e.Check(e.RowLocker().LockTx(e.Ctx, holder, "k", holdfast.Forever))
	own := *e
	name, pool, drop := e.Role()
	defer drop()
	own.Pool = pool
	l := own.RowLocker()
	tx := own.BeginTx(sql.LevelReadCommitted) // as above
	for range 2 {
		found, err := blockersOf(l.LockTx(e.Ctx, tx, "k", 300*time.Millisecond))
		if !errors.Is(err, rowlock.ErrTimeout) {
			e.Errorf("%s: %v", name, err)
		}
		for _, b := range found {
			if e.Engine != dbtest.Postgres || b.Session != e.SessionOf(holder) || b.State != "" || b.Open != 0 {
				e.Errorf("%s sees %+v: %v", name, b, err)
			}
		}
	}
	e.EndTx(holder, true)
	e.Check(l.LockTx(e.Ctx, tx, "k", dbtest.Hang))
	own.EndTx(tx, true)
}

func first[T any](_ T, err error) error { return err }

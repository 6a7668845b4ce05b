package operations

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Blockers is the suite of what an answer "in progress" says about the holder of the key.
func Blockers[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"NamesBlockers":     namesBlockers[Tx],
		"RowNamesBlockers":  rowNamesBlockers[Tx],
		"NamesNobodyUnseen": namesNobodyUnseen[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// blockersOf returns those whom an answer "in progress" names.
func blockersOf(err error) ([]holdfast.Blocker, error) {
	var p *idempotency.InProgressError
	if err != nil && !errors.As(err, &p) {
		return nil, errors.Join(errors.New("not in progress"), err)
	}
	if p == nil {
		return nil, nil
	}
	return p.Blockers, err
}

// shortWait waits less than a second on PostgreSQL, and on MySQL and MariaDB for the two waits of a
// second, the shortest one there, that it takes to look.
func (e *env[Tx]) shortWait() idempotency.Options {
	if e.InnoDB() {
		return idempotency.Options{Wait: 1500 * time.Millisecond}
	}
	return idempotency.Options{Wait: 300 * time.Millisecond, LockTimeout: 200 * time.Millisecond}
}

// held runs do, in another session, until release is called. It returns that session.
func (e *env[Tx]) held(do func(fn func(ctx context.Context, tx Tx) error) error) (session string, release func()) {
	e.Helper()
	started, free, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- do(func(_ context.Context, tx Tx) error {
			id := ""
			if e.DB.Capabilities().NamesBlockers {
				id = e.SessionOf(tx)
			}
			started <- id
			<-free
			return nil
		})
	}()
	select {
	case session = <-started:
	case err := <-ended:
		e.Fatal("the holder did not start:", err)
	}
	return session, func() {
		close(free)
		e.Check(<-ended)
	}
}

func (e *env[Tx]) heldKey(key string) (session string, release func()) {
	e.Helper()
	return e.held(func(fn func(ctx context.Context, tx Tx) error) error {
		_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			return "held", fn(ctx, tx)
		})
		return err
	})
}

func namesBlockers[Tx any](e *env[Tx]) {
	const key = "whose key"
	session, release := e.heldKey(key)
	s := e.Store(e.shortWait())
	unnamed := func(found []holdfast.Blocker, err error) ([]holdfast.Blocker, error) {
		if err != nil && strings.Contains(err.Error(), key) {
			e.Errorf("the error has the key: %v", err)
		}
		return found, err
	}
	e.WantBlocker("Do", session, func() ([]holdfast.Blocker, error) {
		_, err := e.Do(s, conformance.Op(key))
		return unnamed(blockersOf(err))
	})
	e.WantBlocker("DoTx", session, func() ([]holdfast.Blocker, error) {
		tx := e.BeginTx(sql.LevelDefault)
		defer func() { _ = e.End(e.Ctx, tx, false) }()
		_, err := e.DoTx(s, tx, conformance.Op(key))
		return unnamed(blockersOf(err))
	})
	op := conformance.Op(key)
	op.Wait = holdfast.NoWait
	if found, err := blockersOf(func() error { _, err := e.Do(s, op); return err }()); len(found) > 0 || !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("without a wait: %+v, %v", found, err)
	}
	release()
	if r, err := e.Do(s, conformance.Op(key)); err != nil || r.Value != "held" {
		e.Errorf("after the holder: %v, %v", r, err)
	}
}

func rowNamesBlockers[Tx any](e *env[Tx]) {
	o := e.shortWait()
	open := func() *businessrow.Table[conformance.Refund, Tx] { // as in its own process
		t, err := businessrow.New[conformance.Refund](e.Ctx, e.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}},
			businessrow.Options{Wait: max(o.Wait, 500*time.Millisecond), LockTimeout: o.LockTimeout})
		e.Check(err)
		return t
	}
	row := conformance.Refund{No: "a", Amount: 5}
	session, release := e.held(func(fn func(ctx context.Context, tx Tx) error) error {
		_, err := open().Do(e.Ctx, row, fn)
		return err
	})
	refunds := open()
	e.WantBlocker("Table.Do", session, func() ([]holdfast.Blocker, error) {
		_, err := refunds.Do(e.Ctx, row, func(context.Context, Tx) error { return nil })
		return blockersOf(err)
	})
	release()
}

// namesNobodyUnseen waits as a role that may not see who blocks: the answer is as if the engine could
// not tell. PostgreSQL shows every role the number of the session, and not what it does.
func namesNobodyUnseen[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no users
	}
	session, release := e.heldKey("a")
	own := *e
	name, pool, drop := e.Role()
	defer drop()
	own.Pool = pool
	s := own.Store(e.shortWait())
	found, err := blockersOf(func() error { _, err := own.Do(s, conformance.Op("a")); return err }())
	if !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("%s: %v", name, err)
	}
	for _, b := range found {
		if e.Engine != dbtest.Postgres || b.Session != session || b.State != "" || b.Open != 0 {
			e.Errorf("%s sees %+v: %v", name, b, err)
		}
	}
	release()
	if r, err := own.Do(s, conformance.Op("a")); err != nil || r.Value != "held" {
		e.Errorf("after the holder: %v, %v", r, err)
	}
}

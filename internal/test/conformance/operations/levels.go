package operations

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// namedLevels returns all levels that database/sql names, or those of the pgx handle.
func (e *env[Tx]) namedLevels() []sql.IsolationLevel {
	if e.Handle.Name[:3] == "pgx" {
		return []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
	}
	return []sql.IsolationLevel{
		sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelWriteCommitted,
		sql.LevelRepeatableRead, sql.LevelSnapshot, sql.LevelSerializable, sql.LevelLinearizable,
	}
}

// isolationOfCallers runs duplicates in callers' transactions at each level that the driver
// supports. They have one effect, replay, report mismatches and keep a rejection. Every other
// level is refused before a transaction begins.
func isolationOfCallers[Tx any](e *env[Tx]) {
	works := append(e.Levels(), sql.LevelDefault)
	for _, level := range e.namedLevels() {
		if level == sql.LevelReadUncommitted && e.Engine == dbtest.Vitess {
			continue // the router keeps it for the session, and Holdfast refuses such a session
		}
		tx, err := e.Begin(e.Ctx, level)
		if err != nil {
			if slices.Contains(works, level) {
				e.Errorf("%v: %v", level, err)
			}
			e.Logf("%v is refused: %v", level, err)
			continue
		}
		e.EndTx(tx, false)
		e.callersAt(level)
	}
}

func (e *env[Tx]) callersAt(level sql.IsolationLevel) {
	key := level.String()
	var mu sync.Mutex
	outcomes := map[idempotency.Outcome]int{}
	var wg sync.WaitGroup
	for range 6 {
		s := e.Store(idempotency.Options{}) // as in a separate process
		wg.Go(func() {
			o := e.callerRetries(s, level, key)
			mu.Lock()
			defer mu.Unlock()
			outcomes[o]++
		})
	}
	wg.Wait()
	e.WantOnce(key)
	e.WantOnce("caller of " + key) // the caller's own write commits together with the execution
	if outcomes[idempotency.Executed] != 1 || outcomes[idempotency.Replayed] != 5 {
		e.Errorf("%v: %v", level, outcomes)
	}

	s := e.Store(idempotency.Options{})
	tx := e.BeginTx(level)
	other := conformance.Op(key)
	other.Request = "another"
	if _, err := e.DoTx(s, tx, other); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("%v: %v, want a mismatch", level, err)
	}
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		r, err := idempotency.DoTx(e.Ctx, s, tx, conformance.Op("rejected "+key), func(ctx context.Context, tx Tx) (string, error) {
			return "", errors.Join(e.Effect(ctx, tx, "rejected "+key), idempotency.Reject("no", "never"))
		})
		if rej := (*idempotency.Rejection)(nil); !errors.As(err, &rej) || r.Outcome != outcome {
			e.Errorf("%v: %v, %v", level, r, err)
		}
	}
	e.EndTx(tx, true)
	if n := e.Effects("rejected " + key); n != 0 {
		e.Errorf("%v: the rejected function left %d effects", level, n)
	}
	if _, err := e.Do(s, conformance.Op("rejected "+key)); err == nil {
		e.Errorf("%v: the rejection was not kept", level)
	}
}

// callerRetries is a caller that starts a new transaction when an error asks for it.
func (e *env[Tx]) callerRetries(s *idempotency.Store[Tx], level sql.IsolationLevel, key string) idempotency.Outcome {
	for e.Ctx.Err() == nil {
		tx, err := e.Begin(e.Ctx, level)
		if err != nil {
			e.Error(err)
			return 0
		}
		r, err := e.DoTx(s, tx, conformance.Op(key))
		if err == nil && r.Outcome == idempotency.Executed {
			err = e.Effect(e.Ctx, tx, "caller of "+key)
		}
		if err == nil {
			err = e.End(e.Ctx, tx, true)
		}
		switch {
		case err == nil:
			return r.Outcome
		case e.DB.Retryable(err) || errors.Is(err, idempotency.ErrInProgress):
			_ = e.End(e.Ctx, tx, false) // rolls back where Holdfast has not done so
		default:
			e.Errorf("%v: %v", level, err)
			return 0
		}
	}
	return 0
}

// readOnlyCaller uses a read-only transaction: it cannot claim, and no function runs.
func readOnlyCaller[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.ReadOnlySession)
	readOnly := map[dbtest.Engine]string{
		dbtest.Postgres: `SET TRANSACTION READ ONLY`, dbtest.MySQL: `START TRANSACTION READ ONLY`,
		dbtest.MariaDB: `START TRANSACTION READ ONLY`, dbtest.SQLite: `PRAGMA query_only = ON`,
	}[e.Engine.Kin()]
	tx := e.BeginTx(sql.LevelDefault)
	if _, err := e.Exec(e.Ctx, tx, readOnly); err != nil {
		e.Fatal(err)
	}
	_, err := idempotency.DoTx(e.Ctx, e.Store(idempotency.Options{}), tx, conformance.Op("a"), func(context.Context, Tx) (string, error) {
		e.Error("it ran without a claim")
		return "", nil
	})
	if err == nil || errors.Is(err, idempotency.ErrInProgress) || e.DB.Retryable(err) {
		e.Errorf("got %v, want an error that is not to be retried", err)
	}
	e.Logf("read only: %v", err)
	e.WantRolledBack(tx)
}

// manyInOneTransaction runs many operations in one caller's transaction. Each operation removes
// its savepoint when it is done.
func manyInOneTransaction[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	tx := e.BeginTx(sql.LevelDefault)
	for i := range 200 {
		if _, err := e.DoTx(s, tx, conformance.Op(conformance.Numbered("op", i))); err != nil {
			e.Fatal(err)
		}
	}
	e.EndTx(tx, true)
	if n := e.Int(`SELECT COUNT(*) FROM effects`); n != 200 {
		e.Errorf("%d effects", n)
	}
}

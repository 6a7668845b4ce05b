package rowlock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// TestOnlyWaitsAsk checks that a call asks nothing about sessions unless a wait of it has ended without
// the lock.
func TestOnlyWaitsAsk(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		var mu sync.Mutex
		var asked []string
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if s.Name == "session" || s.Name == "blockers" {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, s.Name)
			}
		}}})
		l := e.RowLocker()
		holder := e.BeginTx(sql.LevelDefault)
		e.Check(l.LockTx(e.Ctx, holder, "k", dbtest.Hang))
		e.Check(l.LockTx(e.Ctx, holder, "k", dbtest.Hang))
		tx := e.BeginTx(sql.LevelDefault)
		if err := l.LockTx(e.Ctx, tx, "k", holdfast.NoWait); err == nil {
			e.Error("two have it")
		}
		took := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(asked)
		}
		if got := took(); len(got) > 0 {
			e.Errorf("asked %v, though nothing has waited", got)
		}
		e.Eventually("a wait that takes long asks", func() bool {
			if err := l.LockTx(e.Ctx, tx, "k", 300*time.Millisecond); !errors.Is(err, rowlock.ErrTimeout) {
				e.Fatal(err)
			}
			got := took()
			if !e.DB.Capabilities().NamesBlockers {
				if len(got) > 0 {
					e.Errorf("asked %v, which the engine does not tell", got)
				}
				return true
			}
			return slices.Contains(got, "session") && slices.Contains(got, "blockers")
		})
		e.EndTx(holder, true)
		e.EndTx(tx, true)
	})
}

// TestBlockersNeedAFreeConnection checks that a wait ends as it did where the pool has no connection
// for the question.
func TestBlockersNeedAFreeConnection(t *testing.T) {
	t.Parallel()
	conformance.Run(t, limited(1), func(e *conformance.Env[*sql.Tx]) {
		other := conformance.SQLPool(e.T, e.SQL)
		locks, err := rowlock.New(e.Ctx, other.DB)
		e.Check(err)
		holder, err := other.Begin(e.Ctx, sql.LevelDefault)
		e.Check(err)
		e.Check(locks.LockTx(e.Ctx, holder, "k", holdfast.Forever))
		l := e.RowLocker()
		tx := e.BeginTx(sql.LevelDefault)
		start := time.Now()
		err = l.LockTx(e.Ctx, tx, "k", 300*time.Millisecond)
		var late *rowlock.TimeoutError
		if !errors.As(err, &late) || len(late.Blockers) > 0 || time.Since(start) > dbtest.Slack {
			e.Errorf("got %v after %v", err, time.Since(start))
		}
		e.Check(other.End(e.Ctx, holder, true))
		e.Check(l.LockTx(e.Ctx, tx, "k", dbtest.Hang))
		e.EndTx(tx, true)
	})
}

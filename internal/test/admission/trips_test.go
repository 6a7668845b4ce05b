package admission_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestTrips counts the round trips of admission. Open sent two queries before admission existed
// (SQLite three) and sends at most four now; a new connection costs one query, a known one none.
func TestTrips(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, migrated(t, e))
		pool.SetMaxIdleConns(2)
		var sent, asked atomic.Int64
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			sent.Add(1)
			if s.Name == "admission" {
				asked.Add(1)
			}
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if n := sent.Load(); n > 4 {
			t.Errorf("Open took %d round trips", n)
		}
		use := func() (trips int64) {
			t.Helper()
			asked.Store(0)
			if err := db.CheckSchema(t.Context()); err != nil {
				t.Fatal(err)
			}
			return asked.Load()
		}
		if n := use(); n != 0 {
			t.Errorf("the connection of Open was asked %d times more", n)
		}
		first, err := pool.Conn(t.Context()) // it is in use, so the pool opens another one
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = first.Close() }()
		if n := use(); n != 1 {
			t.Errorf("a later connection was asked %d times, want 1", n)
		}
		if n := use(); n != 0 {
			t.Errorf("a known connection was asked %d times", n)
		}
	})
}

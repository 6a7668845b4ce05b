package holdfast_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// panicking panics on every call.
type panicking struct{}

func (panicking) Start(context.Context, holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	panic("start")
}
func (panicking) Statement(context.Context, holdfast.Statement) { panic("statement") }
func (panicking) Event(context.Context, holdfast.Event)         { panic("event") }

// TestTracersPanic has a tracer and an observer that panic, also on Holdfast's own goroutines.
func TestTracersPanic(t *testing.T) {
	t.Parallel()
	_, pool := dbtest.Prepared(t, dbtest.SQLite, "migrated", func(db *sql.DB) {
		if err := migrations.Up(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	})
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Tracers: []holdfast.Tracer{panicking{}}, Observers: []holdfast.Observer{func(context.Context, holdfast.Statement) { panic("observer") }}})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := sqllock.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Do(t.Context(), "order/42", func(context.Context, *sqllock.Lease) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

package scaleout_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestNoVSchema uses tables of which a sharded keyspace does not know the shard.
func TestNoVSchema(t *testing.T) {
	pool := dbtest.OpenSQL(t, sharded(t)[0])
	o := holdfast.Options{SingleOwner: true, Prefix: "unknown_"}
	if err := migrations.Up(t.Context(), pool, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := migrations.Down(context.WithoutCancel(t.Context()), pool, o); err != nil {
			t.Error(err)
		}
	})
	db, err := holdfastsql.Open(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	var locks *sqllock.Locker[*sql.Tx]
	dbtest.Eventually(t, "the router knows the new tables", func() bool {
		locks, err = sqllock.New(t.Context(), db)
		return !errors.Is(err, holdfast.ErrSchema)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := locks.Acquire(t.Context(), "refund"); !errors.Is(err, holdfast.ErrSchema) || !strings.Contains(err.Error(), "--vschema") {
		t.Errorf("got %v", err)
	}
}

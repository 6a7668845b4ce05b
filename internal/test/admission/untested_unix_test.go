//go:build unix

package admission_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestUntested checks that a server with an untested version is refused until the program
// declares that version by name, and that a version which is too old is always refused.
func TestUntested(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenSQL(t, dbtest.OwnMariaDB(t, "--version=11.4.2-MariaDB-log"))
	opened := func(opts ...holdfast.Options) error {
		_, err := holdfastsql.Open(t.Context(), pool, opts...)
		return err
	}
	err := opened()
	wantRefused(t, err, "engine")
	if !strings.Contains(err.Error(), `holdfast.Options{Untested: "MariaDB 11.4"}`) {
		t.Errorf("it does not say how to declare it: %v", err)
	}
	wantRefused(t, opened(holdfast.Options{Untested: "MariaDB 11.8"}), "engine")
	wantRefused(t, opened(holdfast.Options{Untested: "MariaDB 11.4", Engine: holdfast.MySQL}), "engine")
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	must(t, pool, tables(dbtest.MariaDB)...)
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Untested: "MariaDB 11.4"})
	if err != nil {
		t.Fatal(err)
	}
	if db.Product() != "MariaDB 11.4" {
		t.Errorf("got %q", db.Product())
	}
	promises(t, pool, db)

	old := dbtest.OpenSQL(t, dbtest.OwnMariaDB(t, "--version=10.5.29-MariaDB-log"))
	for _, o := range []holdfast.Options{{Untested: ""}, {Untested: "MariaDB 10.5"}, {Engine: holdfast.MariaDB}} {
		_, err := holdfastsql.Open(t.Context(), old, o)
		wantRefused(t, err, "engine")
	}
	if err := migrations.Up(t.Context(), old); err == nil {
		t.Error("tables are made on a version that is too old")
	}
}

//go:build unix

package dbtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestStandby checks that a standby has what its primary acknowledged, that a primary without its standby
// acknowledges nothing, and that both change places.
func TestStandby(t *testing.T) {
	primary, err := dbtest.NewCrashServer(t, dbtest.Postgres)
	if err != nil {
		t.Skip("capability \"own server\": " + err.Error())
	}
	standby, err := primary.NewStandby(t)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(t, dbtest.OpenSQL(t, primary.URL), `CREATE TABLE rows (n INT)`)
	for range 2 {
		exec(t, dbtest.OpenSQL(t, primary.URL), `INSERT INTO rows VALUES (1)`)
		must(primary.InStep())
		must(primary.Kill())
		must(standby.Promote())
		must(primary.Follow(standby))
		primary, standby = standby, primary
	}
	db := dbtest.OpenSQL(t, primary.URL)
	if got := text(t, db, `SELECT count(*) FROM rows`); got != "2" {
		t.Errorf("%s of 2 rows", got)
	}
	must(standby.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := db.ExecContext(ctx, `INSERT INTO rows VALUES (2)`); err == nil {
		t.Error("acknowledged by one server alone")
	}
	must(primary.Alone())
	exec(t, db, `INSERT INTO rows VALUES (3)`)
}

//go:build unix

package prove_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestProven checks that a server which no test run names is opened from the moment on at which a run of
// prove is recorded there, with as many round trips as any other.
func TestProven(t *testing.T) {
	t.Parallel()
	url := dbtest.OwnMariaDB(t, "--version=11.9.1-MariaDB-log")
	pool := dbtest.OpenSQL(t, url)
	var statements []string
	opened := func() error {
		statements = nil
		_, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if s.Name != "admission.more" { // the clock is read again, if it could stand still
				statements = append(statements, s.Name)
			}
		}}})
		return err
	}
	report, err := prove.Run(t.Context(), prove.Options{Duration: 20 * time.Second, Pool: pools(url)})
	if err != nil || report.Verdict != prove.Pass {
		t.Fatalf("prove: %v, %s", err, report.Text())
	}
	if err := prove.Record(t.Context(), pool, report); err == nil || !strings.Contains(err.Error(), "migrate up") {
		t.Errorf("recording without the tables: %v", err)
	}
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	refused := opened()
	if !errors.Is(refused, holdfast.ErrUnsupported) {
		t.Fatalf("it is opened: %v", refused)
	}
	for _, says := range []string{"holdfast prove --record", "10.11", "11.8", "about a minute"} {
		if !strings.Contains(refused.Error(), says) {
			t.Errorf("the error does not say %q: %v", says, refused)
		}
	}
	for what, r := range map[string]prove.Report{
		"not passed":     {Verdict: prove.NotShown, Product: report.Product},
		"of another one": {Verdict: prove.Pass, Product: "MariaDB 11.7"},
	} {
		if err := prove.Record(t.Context(), pool, r); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a report %s: %v", what, err)
		}
	}
	if err := opened(); !errors.Is(err, holdfast.ErrUnsupported) {
		t.Errorf("it is opened: %v", err)
	}
	if found := versions(t, pool, "MariaDB 11.9"); len(found) != 1 || !strings.Contains(found[0].Advice, "prove --record") {
		t.Errorf("doctor: %+v", found)
	}
	for range 2 { // again replaces it
		if err := prove.Record(t.Context(), pool, report); err != nil {
			t.Fatal(err)
		}
	}
	if err := opened(); err != nil {
		t.Fatal(err)
	}
	if found := versions(t, pool, "MariaDB 11.9"); len(found) != 0 {
		t.Errorf("doctor: %+v", found)
	}
	if trips := 3; len(statements) != trips {
		t.Errorf("Open took %d round trips, not %d: %q", len(statements), trips, statements)
	}
	var hash string
	if err := pool.QueryRowContext(t.Context(), `SELECT HEX(hash) FROM holdfast_servers WHERE SHA2(report, 256) = LOWER(HEX(hash)) AND proven_at >= seen_at AND JSON_VALUE(report, '$.verdict') = 'pass'`).Scan(&hash); err != nil {
		t.Errorf("the report: %v", err)
	}
}

// versions returns what doctor finds about the server's version, for a program that declares it.
func versions(t *testing.T, pool *sql.DB, untested string) (about []doctor.Finding) {
	t.Helper()
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Untested: untested})
	if err != nil {
		t.Fatal(err)
	}
	found, err := doctor.Check(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Check == "server version" {
			about = append(about, f)
		}
	}
	return about
}

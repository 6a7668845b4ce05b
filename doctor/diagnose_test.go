package doctor_test

import (
	"io"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// diagnose opens a database as a program would and says all that is found.
func diagnose(t *testing.T, url string) map[string]doctor.Finding {
	t.Helper()
	var found []doctor.Finding
	db, err := holdfastsql.Open(t.Context(), dbtest.OpenSQL(t, url))
	if err == nil {
		found, err = doctor.Check(t.Context(), db, doctor.Options{})
	}
	if err != nil {
		f, ok := doctor.Refused(err)
		if !ok || f.Problem == "" || f.Advice == "" {
			t.Fatalf("it is no finding: %v", err)
		}
		found = append(found, f)
	}
	all := map[string]doctor.Finding{}
	for _, f := range found {
		all[f.Check] = f
	}
	return all
}

func exec(t *testing.T, url string, queries ...string) {
	t.Helper()
	pool := dbtest.OpenSQL(t, url)
	for _, q := range queries {
		if _, err := pool.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func migrate(t *testing.T, url string) {
	t.Helper()
	if err := migrations.Up(t.Context(), dbtest.OpenSQL(t, url)); err != nil {
		t.Fatal(err)
	}
}

// TestRefused: what no DB is opened on is a finding too; other errors are none.
func TestRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		switch e {
		case dbtest.MySQL, dbtest.MariaDB:
			found := diagnose(t, url+"?autocommit=0")
			want(t, found, "settings", doctor.Broken)
			if len(found) != 1 || !strings.Contains(found["settings"].Problem, "autocommit") {
				t.Errorf("got %+v", found)
			}
		case dbtest.SQLite: // settings that would disturb another connection
			for param, check := range map[string]string{"journal_mode(MEMORY)": "journal", "journal_mode(OFF)": "journal", "query_only(1)": "read only"} {
				want(t, diagnose(t, dbtest.DSN(t, e)+"?_pragma="+param), check, doctor.Broken)
			}
		}
		found := diagnose(t, url)
		wantNone(t, found, "settings", "journal", "read only")
		want(t, found, "schema", doctor.Broken)
	})
	for _, err := range []error{nil, holdfast.ErrInvalid, io.EOF} {
		if f, ok := doctor.Refused(err); ok {
			t.Errorf("%v: got %+v", err, f)
		}
	}
}

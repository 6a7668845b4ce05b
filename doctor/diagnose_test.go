package doctor_test

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// diagnose opens a database as a program does and returns all findings.
func diagnose(t *testing.T, url string) map[string]doctor.Finding {
	t.Helper()
	var found []doctor.Finding
	db, err := holdfastsql.Open(t.Context(), dbtest.OpenSQL(t, url), holdfast.Options{SingleOwner: true})
	if err == nil {
		found, err = doctor.Check(t.Context(), db)
	}
	if err != nil {
		refused, ok := doctor.Refused(err)
		if !ok || refused[0].Problem == "" || refused[0].Advice == "" {
			t.Fatalf("it is no finding: %v", err)
		}
		found = append(found, refused...)
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

// TestRefused checks that a database which Open refuses is a finding too, and that other
// errors are not.
func TestRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		switch e {
		case dbtest.MySQL, dbtest.MariaDB:
			found := diagnose(t, url+"?autocommit=0")
			want(t, found, "autocommit", doctor.Broken)
			if len(found) != 1 {
				t.Errorf("got %+v", found)
			}
		case dbtest.Postgres:
			want(t, diagnose(t, url+"&default_transaction_read_only=on"), "read only", doctor.Broken)
		case dbtest.SQLite: // settings that would disturb another connection
			for param, check := range map[string]string{"journal_mode(MEMORY)": "journal", "journal_mode(OFF)": "journal", "query_only(1)": "read only"} {
				want(t, diagnose(t, dbtest.DSN(t, e)+"?_pragma="+param), check, doctor.Broken)
			}
		}
		found := diagnose(t, url)
		wantNone(t, found, "autocommit", "journal", "read only")
		want(t, found, "schema", doctor.Broken)
	})
	for _, err := range []error{nil, holdfast.ErrInvalid, io.EOF} {
		if f, ok := doctor.Refused(err); ok {
			t.Errorf("%v: got %+v", err, f)
		}
	}
}

// TestLittlePermission checks that a role with few privileges gets a finding that names what
// it cannot read, and no other finding because of that.
func TestLittlePermission(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite {
			return // it has no roles
		}
		dbtest.Needs(t, e, dbtest.Users)
		url := dbtest.DSN(t, e)
		migrate(t, url)
		name := "hf_" + strings.ToLower(rand.Text()[:12])
		schema := map[bool]string{true: `current_schema()`, false: `DATABASE()`}[e == dbtest.Postgres]
		var database string
		pool := dbtest.OpenSQL(t, url)
		if err := pool.QueryRowContext(t.Context(), `SELECT `+schema).Scan(&database); err != nil {
			t.Fatal(err)
		}
		setup, drop := []string{`CREATE USER ` + name + ` IDENTIFIED BY 'x'`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ` + database + `.* TO ` + name}, []string{`DROP USER ` + name}
		if e == dbtest.Postgres {
			setup = []string{`CREATE USER ` + name + ` PASSWORD 'x'`, `GRANT USAGE ON SCHEMA ` + database + ` TO ` + name, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ` + database + ` TO ` + name}
			drop = []string{`DROP OWNED BY ` + name, `DROP USER ` + name}
		}
		t.Cleanup(func() {
			for _, q := range drop {
				if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
					t.Error(err)
				}
			}
		})
		for _, q := range setup {
			if _, err := pool.ExecContext(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		scheme, rest, _ := strings.Cut(url, "://")
		all := diagnose(t, url)
		for check, f := range diagnose(t, scheme+"://"+name+":x"+rest[strings.LastIndex(rest, "@"):]) {
			_, both := all[check]
			lacks := e == dbtest.MySQL && check == "replication" && f.Severity == doctor.Notice || e == dbtest.TiDB && check == "TiDB clocks"
			if both || lacks {
				continue
			}
			t.Errorf("the role is told of %+v", f)
		}
	})
}

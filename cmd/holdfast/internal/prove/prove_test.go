package prove_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// pools returns a function that opens pools on a database.
func pools(url string) func(dial prove.Dial) (*sql.DB, error) {
	return func(dial prove.Dial) (*sql.DB, error) { return dsn.OpenThrough(url, dial) }
}

// verdicts returns the results of a report's promises and checks, by name.
func verdicts(r prove.Report) map[string]prove.Verdict {
	all := map[string]prove.Verdict{}
	for _, p := range r.Promises {
		all[p.Name] = p.Verdict
	}
	for _, c := range r.Checks {
		all[c.Name] = c.Verdict
	}
	return all
}

// wantNoTables fails if a table of a run is left.
func wantNoTables(t *testing.T, e dbtest.Engine, url string) {
	t.Helper()
	query := `SELECT table_name FROM information_schema.tables WHERE table_schema = ` +
		map[bool]string{true: `current_schema()`, false: `DATABASE()`}[e == dbtest.Postgres]
	if e == dbtest.SQLite {
		query = `SELECT name FROM sqlite_master`
	}
	rows, err := dbtest.OpenSQL(t, url).QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s is left", name)
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}

// TestPass checks that a correct engine passes every check that applies to it, and that
// nothing is left in the database.
func TestPass(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		var begun []string
		report, err := prove.Run(t.Context(), prove.Options{Duration: prove.MaxDuration, Pool: pools(url), Progress: func(check string) { begun = append(begun, check) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(report.Text())
		lacking := map[string]bool{}
		if e == dbtest.SQLite {
			lacking = map[string]bool{"row lock": true, "skip locked": true, "lost commit": true, "G6": true}
		}
		if !skips(e) {
			lacking["skip locked"] = true
		}
		for name, got := range verdicts(report) {
			want := prove.Pass
			if lacking[name] {
				want = prove.NotApplicable
			}
			if got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if len(report.Promises) != 8 || report.Verdict != prove.Pass || report.Engine != string(e) || report.Version == "" ||
			report.Holdfast == "" || report.At.IsZero() || report.TookMS == 0 || len(begun) == 0 {
			t.Errorf("got %+v after %v", report, begun)
		}
		for _, c := range report.Checks {
			if c.Verdict == prove.Pass && (c.Attempts == 0 || c.Found != "") || c.Verdict == prove.NotApplicable && c.Found == "" {
				t.Errorf("got %+v", c)
			}
		}
		if _, err := json.Marshal(report); err != nil {
			t.Error(err)
		}
		wantNoTables(t, e, url)
	})
}

// TestInterrupted checks that an interrupted run leaves nothing.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := dbtest.DSN(t, e)
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		stop := errors.New("interrupted")
		_, err := prove.Run(ctx, prove.Options{Pool: pools(url), Progress: func(check string) {
			if check == "lease race" {
				cancel(stop)
			}
		}})
		if !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
		wantNoTables(t, e, url)
	})
}

// TestRefused checks that a database which Holdfast refuses to open gives a report.
func TestRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e.Like() != dbtest.MySQL {
			return // it has no URL setting that Holdfast refuses
		}
		report, err := prove.Run(t.Context(), prove.Options{Pool: pools(dbtest.With(dbtest.DSN(t, e), "autocommit=0"))})
		if err != nil || report.Verdict != prove.Fail || !strings.Contains(report.Refused, "autocommit") || !strings.Contains(report.Text(), "refused: ") {
			t.Errorf("got %+v, %v", report, err)
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	pool := pools(dbtest.DSN(t, dbtest.SQLite))
	for _, o := range []prove.Options{{}, {Pool: pool, Open: holdfast.Options{Prefix: "a;b"}}, {Pool: pool, Open: holdfast.Options{Prefix: strings.Repeat("p", 20)}}} {
		if _, err := prove.Run(t.Context(), o); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

// TestEncrypted checks that COMMIT is found on an encrypted connection.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		encrypted := map[dbtest.Engine]string{dbtest.Postgres: "sslmode=require", dbtest.MySQL: "tls=skip-verify"}[e.Like()]
		if encrypted == "" {
			return // it has no connection
		}
		url := dbtest.With(strings.Replace(dbtest.DSN(t, e), "sslmode=disable&", "", 1), encrypted)
		if err := dbtest.OpenSQL(t, url).PingContext(t.Context()); err != nil {
			t.Skipf("capability \"TLS\": %v", err)
		}
		report, err := prove.Run(t.Context(), prove.Options{Duration: prove.MaxDuration, Pool: pools(url)}.Only("isolation", "lost commit"))
		if err != nil || verdicts(report)["G6"] != prove.Pass {
			t.Errorf("got %v, %s", err, report.Text())
		}
	})
}

// TestLittlePermission checks that a role is sufficient that owns its tables and cannot see
// the sessions of others.
func TestLittlePermission(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e == dbtest.SQLite || e == dbtest.Vitess {
			return // it has no roles
		}
		url := dbtest.DSN(t, e)
		pool := dbtest.OpenSQL(t, url)
		var database string
		current := map[bool]string{true: `current_schema()`, false: `DATABASE()`}[e == dbtest.Postgres]
		if err := pool.QueryRowContext(t.Context(), `SELECT `+current).Scan(&database); err != nil {
			t.Fatal(err)
		}
		role := "hf_" + strings.ToLower(rand.Text()[:12])
		setup, drop := []string{`CREATE USER ` + role + ` IDENTIFIED BY 'x'`, `GRANT ALL ON ` + database + `.* TO ` + role}, []string{`DROP USER ` + role}
		if e == dbtest.Postgres {
			setup, drop = []string{`CREATE USER ` + role + ` PASSWORD 'x'`, `GRANT USAGE, CREATE ON SCHEMA ` + database + ` TO ` + role}, []string{`DROP OWNED BY ` + role, `DROP USER ` + role}
		}
		exec := func(queries []string) {
			for _, q := range queries {
				if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
					t.Error(err)
				}
			}
		}
		exec(setup)
		t.Cleanup(func() { exec(drop) })
		scheme, rest, _ := strings.Cut(url, "://")
		report, err := prove.Run(t.Context(), prove.Options{
			Duration: prove.MaxDuration, Pool: pools(scheme + "://" + role + ":x" + rest[strings.LastIndex(rest, "@"):]),
		}.Only("one database", "row lock", "skip locked", "tokens"))
		if err != nil || report.Verdict != prove.Pass {
			t.Errorf("got %v, %s", err, report.Text())
		}
		wantNoTables(t, e, url)
	})
}

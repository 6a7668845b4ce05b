package doctor_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestEncryption checks that a connection over a network which is not encrypted is found, and one that is is not.
func TestEncryption(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cipher, from string
		found        bool
	}{
		{"", "10.0.0.7", true},
		{"TLS_AES_256_GCM_SHA384", "10.0.0.7", false},
		{"", "app.example", true},
		{"", "127.0.0.1", false},
		{"", "::1", false},
		{"", "localhost", false},
		{"", "", false},
	} {
		severity, problem, _ := dialect.Encryption("").Judge([]string{c.cipher, c.from})
		if (problem != "") != c.found || c.found && severity != dialect.Warning {
			t.Errorf("%+v: %v %q", c, severity, problem)
		}
	}
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		query := map[dbtest.Engine]string{
			dbtest.Postgres: `SELECT COALESCE(host(inet_client_addr()), '')`,
			dbtest.MySQL:    `SELECT SUBSTRING_INDEX(USER(), '@', -1)`, dbtest.MariaDB: `SELECT SUBSTRING_INDEX(USER(), '@', -1)`,
		}[e]
		if query == "" {
			return // no network
		}
		url := dbtest.DSN(t, e)
		pool := dbtest.OpenSQL(t, url)
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		found := func(pool *sql.DB) map[string]doctor.Finding {
			t.Helper()
			db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
			if err != nil {
				t.Fatal(err)
			}
			return examine(t, db, doctor.Options{})
		}
		var from string
		if err := pool.QueryRowContext(t.Context(), query).Scan(&from); err != nil {
			t.Fatal(err)
		}
		if from == "" || from == "localhost" || strings.HasPrefix(from, "127.") || from == "::1" {
			wantNone(t, found(pool), "encryption")
		} else {
			want(t, found(pool), "encryption", doctor.Warning)
		}
		if e == dbtest.MySQL { // it makes its own certificate
			sep := map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")]
			wantNone(t, found(dbtest.OpenSQL(t, url+sep+"tls=skip-verify")), "encryption")
		}
	})
}

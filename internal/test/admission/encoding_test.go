package admission_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// identities has text that other encodings than UTF-8 take for other characters.
var identities = []string{"café", "日本", "🙂"} //nolint:gosmopolitan // other encodings are the point

// executions has processes claim the same keys for the same owners and take the same locks, with each of
// the names. It returns how often the functions ran, and how many leases were granted.
func executions(t *testing.T, names []string, dbs ...*holdfast.DB[*sql.Tx]) (runs, leases int) {
	t.Helper()
	for _, name := range names {
		for _, db := range dbs {
			s, err := idempotency.New(t.Context(), db, idempotency.Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = idempotency.Do(t.Context(), s, idempotency.Op{Owner: name, Name: "refund", Key: name, NoFingerprint: true}, func(context.Context, *sql.Tx) (string, error) {
				runs++
				return name, nil
			})
			if err != nil {
				t.Logf("do %s: %v", name, err)
			}
			l, err := sqllock.New(t.Context(), db, sqllock.Options{TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close(t.Context()) })
			if _, err := l.TryAcquire(t.Context(), name); err == nil {
				leases++
			}
		}
	}
	return runs, leases
}

// twoOwners shows that a key runs twice, or a lock has two holders.
func twoOwners(t *testing.T, e planted) {
	t.Helper()
	runs, leases := executions(t, identities, e.other, e.db)
	if runs <= len(identities) && leases <= len(identities) {
		t.Errorf("without the rule nothing breaks: %d runs, %d leases of %d", runs, leases, len(identities))
	}
}

// TestEncodingOfRole checks that a program whose role gets another encoding is refused on its next
// connection.
func TestEncodingOfRole(t *testing.T) {
	t.Parallel()
	postgres.each(t, func(t *testing.T, admin string) {
		u, err := url.Parse(admin)
		if err != nil {
			t.Fatal(err)
		}
		pool, role := dbtest.OpenSQL(t, admin), "hf_"+strings.ToLower(rand.Text()[:16])
		must(t, pool, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret' SUPERUSER`)
		t.Cleanup(func() { _, _ = pool.ExecContext(context.WithoutCancel(t.Context()), `DROP ROLE `+role) })
		u.User = url.UserPassword(role, "secret")
		program := dbtest.OpenSQL(t, u.String())
		db := mustOpen(t, program)
		first, err := program.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = first.Close() }()
		must(t, pool, `ALTER ROLE `+role+` SET client_encoding = 'LATIN1'`)
		wantRefused(t, db.InTx(t.Context(), nil), "client_encoding")
	})
}

// TestEncodingOfDatabase checks databases in another encoding. A session in UTF8 is served where the
// database keeps different characters apart.
func TestEncodingOfDatabase(t *testing.T) {
	t.Parallel()
	for encoding, check := range map[string]string{"LATIN1": "", "SQL_ASCII": "", "EUC_JP": "server_encoding"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			postgres.each(t, func(t *testing.T, admin string) {
				u, err := url.Parse(admin)
				if err != nil {
					t.Fatal(err)
				}
				pool, name := dbtest.OpenSQL(t, admin), "hf_"+strings.ToLower(rand.Text()[:16])
				must(t, pool, `CREATE DATABASE `+name+` ENCODING '`+encoding+`' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
				t.Cleanup(func() {
					_, _ = pool.ExecContext(context.WithoutCancel(t.Context()), `DROP DATABASE `+name+` WITH (FORCE)`)
				})
				u.Path, u.RawQuery = "/"+name, "sslmode=disable"
				plain := u.String()
				with := dbtest.OpenSQL(t, dbtest.With(plain, "client_encoding=UTF8"))
				if err := migrations.Up(t.Context(), with); err != nil {
					if check == "" {
						t.Fatal(err)
					}
					wantRefused(t, err, check)
					return
				}
				_, err = open(t, dbtest.OpenSQL(t, plain))
				wantRefused(t, err, "client_encoding")
				db, err := open(t, with)
				if check != "" {
					wantRefused(t, err, check)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if runs, leases := executions(t, identities, db, mustOpen(t, with)); runs > len(identities) || leases > len(identities) || runs == 0 || leases == 0 {
					t.Errorf("%d runs, %d leases of %d", runs, leases, len(identities))
				}
			})
		})
	}
}

//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

var orders = flag.Int("orders", 16, "orders of a storm")

// TestMain lets the test binary be the Go client.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "client" {
		main()
		return
	}
	dbtest.VerifyNoLeaks(m)
}

// polyglot is what make polyglot sets, which installs the languages.
const polyglot = "HOLDFAST_TEST_POLYGLOT"

// languages returns who takes part: without make polyglot Go alone.
func languages(t *testing.T) (speak []string, each int) {
	t.Helper()
	if os.Getenv(polyglot) == "" {
		t.Log("Go alone: make polyglot has the other languages")
		return []string{"go"}, 3
	}
	return allLanguages, 1
}

// TestVectors checks that every language computes the bytes of the published vectors.
func TestVectors(t *testing.T) {
	t.Parallel()
	speak, _ := languages(t)
	var out, log strings.Builder
	s := storm{folder: "clients", vectors: "../../docs/reference/protocol/vectors.json", languages: speak, out: &out, log: &log}
	if err := checkVectors(t.Context(), &s); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	t.Log(strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "; "))
}

// account returns a database, on PostgreSQL with its own user: the tests' server may make
// passwords that Java's driver refuses for their short hash.
func account(t *testing.T, e dbtest.Engine) string {
	t.Helper()
	databaseURL := dbtest.DSN(t, e)
	if e != dbtest.Postgres {
		return databaseURL
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	name := "polyglot_" + strings.ToLower(rand.Text()[:10])
	pool := dbtest.OpenSQL(t, databaseURL)
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.ExecContext(t.Context(), `SET scram_iterations = 4096`) // before PostgreSQL 16 it is always that
	if _, err := conn.ExecContext(t.Context(), `CREATE ROLE `+name+` SUPERUSER LOGIN PASSWORD 'polyglot'`); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.ExecContext(t.Context(), `RESET scram_iterations`)
	t.Cleanup(func() {
		for _, q := range []string{`DROP OWNED BY ` + name + ` CASCADE`, `DROP ROLE ` + name} {
			if _, err := pool.ExecContext(context.WithoutCancel(t.Context()), q); err != nil {
				t.Error(err)
			}
		}
	})
	u.User = url.UserPassword(name, "polyglot")
	return u.String()
}

// TestStorm checks that clients of all languages, killed and stopped during that, make one refund for
// each order, and that without the protocol they make more.
func TestStorm(t *testing.T) {
	t.Parallel()
	speak, each := languages(t)
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres && e != dbtest.MySQL && e != dbtest.MariaDB {
			return // there are functions for these
		}
		run := func(protect string) string {
			var out, log strings.Builder
			s := storm{
				url: account(t, e), protect: protect, folder: "clients", orders: *orders, each: each, languages: speak, out: &out, log: &log,
			}
			if err := s.run(t.Context()); err != nil {
				t.Fatalf("%s: %s%v: %s", e, out.String(), err, log.String())
			}
			t.Logf("%s: %s", e, strings.TrimSpace(out.String()))
			return out.String()
		}
		if kills := fmt.Sprintf(" kills=%d ", (*orders+2)/4); !strings.Contains(run(protocol), kills) {
			t.Errorf("want%s", kills)
		}
		dbtest.Eventually(t, "the control makes duplicates", func() bool { return !strings.Contains(run(none), " duplicates=0 ") })
	})
}

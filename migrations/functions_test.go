package migrations_test

import (
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance/functions"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

func TestFunctions(t *testing.T) {
	t.Parallel()
	functions.Suite(t)
}

// TestFunctionsUpAndDown checks that functions are created for each layout, replaced, and dropped with
// the tables.
func TestFunctionsUpAndDown(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		for _, prefix := range []string{"", holdfast.NoPrefix, strings.Repeat("P", 32)} {
			o := holdfast.Options{Prefix: prefix}
			err := migrations.FunctionsUp(t.Context(), pool, o)
			if e == dbtest.SQLite || e == dbtest.TiDB || e == dbtest.Vitess {
				must(t, migrations.Up(t.Context(), pool, o))
				if err := migrations.FunctionsUp(t.Context(), pool, o); !errors.Is(err, holdfast.ErrUnsupported) {
					t.Errorf("got %v", err)
				}
				must(t, migrations.Down(t.Context(), pool, o))
				continue
			}
			if !errors.Is(err, holdfast.ErrSchema) {
				t.Errorf("without tables: %v", err)
			}
			must(t, migrations.Up(t.Context(), pool, o))
			for range 2 {
				must(t, migrations.FunctionsUp(t.Context(), pool, o))
			}
			works(t, pool, o)
			must(t, migrations.FunctionsDown(t.Context(), pool, o))
			must(t, migrations.FunctionsDown(t.Context(), pool, o))
			must(t, migrations.FunctionsUp(t.Context(), pool, o))
			must(t, migrations.Down(t.Context(), pool, o))
			if n := routines(t, pool, e); n != 0 {
				t.Errorf("prefix %q: %d functions are left", prefix, n)
			}
		}
	})
}

func TestFunctionsArePrinted(t *testing.T) {
	t.Parallel()
	for _, e := range engines {
		var b strings.Builder
		o := holdfast.Options{Schema: `S "` + "`" + `'; DROP`, Prefix: "p_"}
		err := migrations.PrintFunctions(&b, e, o)
		if e == holdfast.SQLite {
			if !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("got %v", err)
			}
			continue
		}
		must(t, err)
		var grants strings.Builder
		must(t, migrations.PrintFunctionGrants(&grants, e, `r"`+"`@%", o))
		for _, text := range []string{b.String(), grants.String()} {
			if at := regexp.MustCompile("{[a-z_]+}|[\"`]holdfast_").FindString(text); at != "" {
				t.Errorf("%s: %s is not rendered", e, at)
			}
		}
		if n := strings.Count(grants.String(), "GRANT EXECUTE"); n < 7 {
			t.Errorf("%s: %d grants", e, n)
		}
	}
	if err := migrations.PrintFunctions(&strings.Builder{}, holdfast.PostgreSQL); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("without a schema: %v", err)
	}
	if err := migrations.PrintFunctions(&strings.Builder{}, holdfast.PostgreSQL, holdfast.Options{Schema: "a$holdfast$b"}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a schema that ends a body: %v", err)
	}
	if err := migrations.PrintFunctionGrants(&strings.Builder{}, holdfast.MySQL, ""); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("without a role: %v", err)
	}
}

func routines(t *testing.T, pool *sql.DB, e dbtest.Engine) int {
	t.Helper()
	if e == dbtest.Postgres {
		return scan[int](t, pool, `SELECT COUNT(*) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace`)
	}
	return scan[int](t, pool, `SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE()`)
}

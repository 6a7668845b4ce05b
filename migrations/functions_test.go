package migrations_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

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

// TestFunctionsOfANewerBuild has functions of a higher revision, as a newer program makes them in a rolling deploy: this one leaves
// them, and their grants.
func TestFunctionsOfANewerBuild(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		newer := `COMMENT ON FUNCTION holdfast_claim(text, text, text, bytea, text, integer, bigint) IS 'holdfast functions 1000 00'`
		drop := `DROP FUNCTION holdfast_lookup(text, text, text, text, text, integer)`
		switch e {
		case dbtest.MySQL, dbtest.MariaDB:
			newer, drop = `ALTER PROCEDURE holdfast_claim COMMENT 'holdfast functions 1000 00'`, `DROP PROCEDURE holdfast_lookup`
		case dbtest.Postgres:
		default:
			return // it has no functions
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.FunctionsUp(t.Context(), pool))
		all := routines(t, pool, e)
		for _, statement := range []string{newer, drop} {
			_, err := pool.ExecContext(t.Context(), statement)
			must(t, err)
		}
		must(t, migrations.FunctionsUp(t.Context(), pool))
		if n := routines(t, pool, e); n != all-1 {
			t.Errorf("%d functions, and the newer build had %d", n, all-1)
		}
	})
}

// meanwhile runs a statement on another connection when a text is about to be sent.
type meanwhile struct {
	text string
	then func()
}

func (m *meanwhile) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, m.text) {
		m.then()
	}
	return ctx
}

func (m *meanwhile) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestFunctionsOfANewerBuildMeanwhile lets the newer build make its functions after this one has looked, and before
// it has the lock.
func TestFunctionsOfANewerBuildMeanwhile(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // the decision is the same code, and pgx shows when the lock is taken
		}
		dsn := dbtest.DSN(t, e)
		pool := dbtest.OpenSQL(t, dsn)
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.FunctionsUp(t.Context(), pool))
		is := func(revision int) {
			_, err := pool.ExecContext(t.Context(), fmt.Sprintf(`COMMENT ON FUNCTION holdfast_claim(text, text, text, bytea, text, integer, bigint) IS 'holdfast functions %d 00'`, revision))
			must(t, err)
		}
		is(0)
		config, err := pgx.ParseConfig(dsn)
		must(t, err)
		looked := false
		config.Tracer = &meanwhile{text: "advisory", then: func() {
			looked = true
			is(1000)
		}}
		older := stdlib.OpenDB(*config)
		defer func() { _ = older.Close() }()
		must(t, migrations.FunctionsUp(t.Context(), older))
		var comment string
		must(t, pool.QueryRowContext(t.Context(), `SELECT obj_description('holdfast_claim(text, text, text, bytea, text, integer, bigint)'::regprocedure, 'pg_proc')`).Scan(&comment))
		if !looked || comment != "holdfast functions 1000 00" {
			t.Errorf("the functions are %q", comment)
		}
	})
}

// TestFunctionsUpBesideClients has a client's transaction with a claim open: while the functions are this build's, FunctionsUp
// waits for nobody, and makes nobody wait.
func TestFunctionsUpBesideClients(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // it only reads there
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.FunctionsUp(t.Context(), pool))
		tx, err := pool.BeginTx(t.Context(), nil)
		must(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), `SELECT holdfast_claim('default', '', 'refund', 'k', NULL, 0, 0)`)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		must(t, migrations.FunctionsUp(ctx, pool))
	})
}

// TestFunctionsOfAnotherDefiner plants a procedure with this build's comment, as a restored dump or another account has it: it is
// made anew.
func TestFunctionsOfAnotherDefiner(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.MySQL && e != dbtest.MariaDB {
			return
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.FunctionsUp(t.Context(), pool))
		const of = `SELECT CONCAT(definer, ' ', routine_comment) FROM information_schema.routines WHERE routine_schema = DATABASE() AND routine_name = 'holdfast_lookup'`
		own := scan[string](t, pool, of)
		_, comment, _ := strings.Cut(own, " ")
		for _, statement := range []string{
			`DROP PROCEDURE holdfast_lookup`,
			"CREATE DEFINER = 'gone'@'%' PROCEDURE holdfast_lookup(IN a LONGBLOB, IN b LONGBLOB, IN c LONGBLOB, IN d LONGBLOB, IN e LONGBLOB, IN f INT) COMMENT '" + comment + "' SELECT 'absent' AS outcome",
		} {
			_, err := pool.ExecContext(t.Context(), statement)
			must(t, err)
		}
		must(t, migrations.FunctionsUp(t.Context(), pool))
		if now := scan[string](t, pool, of); now != own {
			t.Errorf("it is %q, want %q", now, own)
		}
	})
}

// TestFunctionsRevision fails when the text of a function has changed and the revision has not. Then raise functionsRevision, and
// write the marks down here: an older program leaves functions of a higher revision.
func TestFunctionsRevision(t *testing.T) {
	t.Parallel()
	marks := map[holdfast.Engine]string{
		holdfast.PostgreSQL: "holdfast functions 1 aabffdf11f36d664",
		holdfast.MySQL:      "holdfast functions 1 b90bc580ed3eb1e2",
		holdfast.MariaDB:    "holdfast functions 1 590f18795c2146c4",
	}
	for _, e := range engines {
		if e == holdfast.SQLite {
			continue
		}
		var b strings.Builder
		must(t, migrations.PrintFunctions(&b, e, holdfast.Options{Schema: "app"}))
		if got := regexp.MustCompile("holdfast functions [0-9]+ [0-9a-f]+").FindString(b.String()); got != marks[e] {
			t.Errorf("%v: %q, recorded is %q", e, got, marks[e])
		}
	}
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

// TestFunctionsOfAMigrator creates the tables and the functions as a role with the grants of the package's
// documentation, and calls them as one that may only call them.
func TestFunctionsOfAMigrator(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres && e != dbtest.MySQL && e != dbtest.MariaDB {
			return // it has no functions
		}
		url := dbtest.DSN(t, e)
		admin := dbtest.OpenSQL(t, url)
		run := func(query string) {
			t.Helper()
			_, err := admin.ExecContext(context.WithoutCancel(t.Context()), query)
			must(t, err)
		}
		name := "hf_" + strings.ToLower(rand.Text()[:12])
		migrator, client, at := name+"_m", name+"_c", ""
		schema := scan[string](t, admin, map[bool]string{true: `SELECT current_schema()`, false: `SELECT DATABASE()`}[e == dbtest.Postgres])
		if e != dbtest.Postgres {
			at = "@%"
		}
		t.Cleanup(func() {
			for _, role := range []string{migrator, client} {
				if e == dbtest.Postgres {
					run(`DROP OWNED BY ` + role)
				}
				run(`DROP USER ` + role)
			}
		})
		for _, role := range []string{migrator, client} {
			run(`CREATE USER ` + role + map[bool]string{true: ` PASSWORD 'x'`, false: ` IDENTIFIED BY 'x'`}[e == dbtest.Postgres])
		}
		if e == dbtest.Postgres {
			run(`GRANT USAGE, CREATE ON SCHEMA ` + schema + ` TO ` + migrator)
		} else {
			run(`GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON ` + schema + `.* TO ` + migrator)
		}
		scheme, rest, _ := strings.Cut(url, "://")
		as := func(role string) *sql.DB {
			return dbtest.OpenSQL(t, scheme+"://"+role+":x"+rest[strings.LastIndex(rest, "@"):])
		}
		pool := as(migrator)
		must(t, migrations.Up(t.Context(), pool))
		must(t, migrations.FunctionsUp(t.Context(), pool))
		var grants strings.Builder
		must(t, migrations.PrintFunctionGrants(&grants, holdfast.Engine(e), client+at, holdfast.Options{Schema: schema}))
		for line := range strings.Lines(grants.String()) {
			_, err := pool.ExecContext(t.Context(), strings.TrimSuffix(strings.TrimSpace(line), ";"))
			if err != nil && e != dbtest.Postgres { // which takes a right to grant
				run(strings.TrimSuffix(strings.TrimSpace(line), ";"))
			} else if err != nil && !strings.HasPrefix(line, "GRANT USAGE") {
				t.Error(err)
			}
		}
		if e == dbtest.Postgres {
			run(`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + client)
		}
		must(t, migrations.FunctionsUp(t.Context(), pool)) // which leaves the grants
		calls, attempt := as(client), strings.Repeat("0a", 16)
		call := map[bool]string{true: `SELECT outcome FROM holdfast_release('', 'k', '` + attempt + `')`, false: `CALL holdfast_release('', 'k', '` + attempt + `')`}[e == dbtest.Postgres]
		if outcome := scan[string](t, calls, call); outcome != "lost" {
			t.Errorf("release: %s", outcome)
		}
		if _, err := calls.ExecContext(t.Context(), `DELETE FROM holdfast_locks`); err == nil {
			t.Error("the client may delete locks")
		}
		must(t, calls.Close())
		must(t, migrations.Down(t.Context(), pool))
		if n := routines(t, admin, e); n != 0 {
			t.Errorf("%d functions are left", n)
		}
		must(t, pool.Close())
	})
}

func routines(t *testing.T, pool *sql.DB, e dbtest.Engine) int {
	t.Helper()
	if e == dbtest.Postgres {
		return scan[int](t, pool, `SELECT COUNT(*) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace`)
	}
	return scan[int](t, pool, `SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = DATABASE()`)
}

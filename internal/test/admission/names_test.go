package admission_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// schemaOf returns the schema, or database, of a test.
func schemaOf(t *testing.T, e dbtest.Engine, pool *sql.DB) (name string) {
	t.Helper()
	query := map[dbtest.Engine]string{dbtest.Postgres: `SELECT current_schema()`, dbtest.SQLite: `SELECT 'main'`}[e]
	if query == "" {
		query = `SELECT DATABASE()`
	}
	if err := pool.QueryRowContext(t.Context(), query).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestNames uses pooled sessions that resolve Holdfast's names to different tables. One payment
// happens once, and without the rule once per session setting.
func TestNames(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := migrated(t, e)
		plain := dbtest.OpenSQL(t, url)
		home := schemaOf(t, e, plain)
		for _, rules := range []string{"", dialect.RuleNames} {
			elsewhere := dbtest.OpenSQL(t, dbtest.DSN(t, e))
			if err := migrations.Up(t.Context(), elsewhere); err != nil {
				t.Fatal(err)
			}
			pool := dbtest.OpenSQL(t, url)
			pool.SetMaxOpenConns(1)
			db := mustOpen(t, pool, rules)
			all := sessions(e, home, schemaOf(t, e, elsewhere))
			paid := func(key string) int {
				must(t, pool, `DELETE FROM effects`)
				for _, session := range all {
					must(t, pool, session)
					pay(t, db, key, home)
				}
				return count(t, plain, `SELECT COUNT(*) FROM effects`)
			}
			want := map[string]int{"": 1, dialect.RuleNames: len(all)}[rules]
			if n := paid("names " + rules); n != want {
				t.Errorf("without rules %q: paid %d times, want %d", rules, n, want)
			}
		}
	})
}

// sessions returns successive settings of a session under which a bare name means a different
// table each time. On MySQL and MariaDB a temporary table also hides a qualified name, so there
// only the database changes. On PostgreSQL a prepared statement does not notice the temporary table
// that hides its own, if the session had a temporary schema before.
func sessions(e dbtest.Engine, home, other string) []string {
	switch e {
	case dbtest.Postgres:
		return []string{
			`CREATE TEMP TABLE IF NOT EXISTS earlier (n INTEGER); SET search_path = ` + home, `SET search_path = ` + other + `, ` + home,
			`CREATE TEMP TABLE holdfast_records (LIKE ` + home + `.holdfast_records INCLUDING ALL); DISCARD PLANS`,
		}
	case dbtest.SQLite:
		return []string{`DROP TABLE IF EXISTS temp.holdfast_records`, `CREATE TEMP TABLE holdfast_records AS SELECT * FROM main.holdfast_records WHERE 0; CREATE UNIQUE INDEX temp.k ON holdfast_records (owner, key_hash)`}
	}
	return []string{`USE ` + home, `USE ` + other}
}

func pay(t *testing.T, db *holdfast.DB[*sql.Tx], key, schema string) {
	t.Helper()
	s, err := idempotency.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	_, err = idempotency.Do(t.Context(), s, idempotency.Op{Name: "pay", Key: key, NoFingerprint: true}, func(ctx context.Context, tx *sql.Tx) (string, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO `+schema+`.effects (k, n) VALUES ('pay', 1)`)
		return "paid", err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOwnTableElsewhere checks that a business row is also found in the schema that was current
// when its table was opened.
func TestOwnTableElsewhere(t *testing.T) {
	t.Parallel()
	postgres.each(t, func(t *testing.T, url string) {
		pool := dbtest.OpenSQL(t, url)
		pool.SetMaxOpenConns(1)
		db := mustOpen(t, pool)
		table, err := businessrow.New[refund](t.Context(), db, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}})
		if err != nil {
			t.Fatal(err)
		}
		must(t, pool, `CREATE TEMP TABLE refunds (LIKE refunds INCLUDING ALL)`)
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			r, err := table.Do(t.Context(), refund{"R-1", 1}, func(context.Context, *sql.Tx) error { return nil })
			if err != nil || r.Outcome != want {
				t.Errorf("got %v, %v; want %v", r.Outcome, err, want)
			}
			must(t, pool, `DROP TABLE pg_temp.refunds`, `CREATE TEMP TABLE refunds (LIKE refunds INCLUDING ALL)`)
		}
		if n := count(t, pool, `SELECT COUNT(*) FROM pg_temp.refunds`); n != 0 {
			t.Errorf("%d rows in the temporary table", n)
		}
	})
}

// TestForeignFunctions puts functions and types with catalog names into a schema at the start of
// the search path. Holdfast does not use them, and Open refuses such a path.
func TestForeignFunctions(t *testing.T) {
	t.Parallel()
	postgres.each(t, func(t *testing.T, base string) {
		plain := dbtest.OpenSQL(t, base)
		home := schemaOf(t, dbtest.Postgres, plain)
		foreign := `RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'foreign function' USING ERRCODE = 'HF999'; END $$`
		must(t, plain,
			`CREATE FUNCTION set_config(text, text, boolean) `+foreign, `CREATE FUNCTION current_setting(text) `+foreign,
			`CREATE FUNCTION clock_timestamp() `+foreign, `CREATE FUNCTION pg_notify(text, text) `+foreign,
			`CREATE FUNCTION date_part(text, timestamptz) `+foreign, `CREATE FUNCTION now() `+foreign, `CREATE FUNCTION octet_length(bytea) `+foreign,
			`CREATE FUNCTION encode(bytea, text) `+foreign, `CREATE FUNCTION substr(bytea, integer, integer) `+foreign,
		)
		with := strings.Replace(base, "search_path="+home, "search_path="+home+",pg_catalog", 1)
		_, err := open(t, dbtest.OpenSQL(t, with))
		wantRefused(t, err, "search_path")

		pool := dbtest.OpenSQL(t, with)
		promises(t, plain, mustOpen(t, pool, "search_path"))
		if _, err := pool.ExecContext(t.Context(), `SELECT now()`); err == nil || dialect.SQLState(err) != "HF999" {
			t.Errorf("the functions were not in the way: %v", err)
		}
	})
}

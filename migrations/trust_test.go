package migrations_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// planted is a database in which another user may create, with a table to which what runs with the
// rights of the migrating user leaves a row.
type planted struct {
	*testing.T
	pool *sql.DB
	e    dbtest.Engine
	role string // "" on engines whose tables have no owner
}

func plant(t *testing.T, e dbtest.Engine) planted {
	p := planted{t, dbtest.OpenSQL(t, dbtest.DSN(t, e)), e, ""}
	p.pool.SetMaxOpenConns(1) // for SET ROLE
	p.run(`CREATE TABLE loot (who VARCHAR(100))`)
	if e != dbtest.Postgres {
		return p
	}
	p.role = "planter_" + scan[string](t, p.pool, `SELECT current_schema()`)
	p.run(`CREATE ROLE ` + p.role)
	t.Cleanup(func() {
		cleanup(t, p.pool, `DROP OWNED BY `+p.role)
		cleanup(t, p.pool, `DROP ROLE `+p.role)
	})
	p.run(`DO $$ BEGIN EXECUTE 'GRANT ALL ON SCHEMA ' || current_schema() || ' TO ` + p.role + `'; END $$`)
	p.run(`CREATE FUNCTION took() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO loot VALUES (current_user); RETURN NEW; END'`)
	return p
}

func (p planted) run(statements ...string) {
	p.Helper()
	for _, s := range statements {
		run(p.T, p.pool, s)
	}
}

// as runs statements as the other user, where there is one.
func (p planted) as(statements ...string) {
	p.Helper()
	if p.role != "" {
		p.run(`SET ROLE ` + p.role)
		defer p.run(`RESET ROLE`)
	}
	p.run(statements...)
}

// refused checks that nothing is migrated, by that name, and that nothing ran.
func (p planted) refused(name, what string) {
	p.Helper()
	err := migrations.Up(p.Context(), p.pool)
	if !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), what) {
		p.Errorf("got %v; want a refusal of %s that %s", err, name, what)
	}
	if n := scan[int](p.T, p.pool, `SELECT COUNT(*) FROM loot`); n != 0 {
		p.Errorf("%s: what was planted ran %d times", name, n)
	}
}

// create returns the printed statement that creates a table.
func create(t *testing.T, e dbtest.Engine, table string) string {
	t.Helper()
	for s := range strings.SplitSeq(printed(t, holdfast.Engine(e)), ";\n") {
		if at := strings.Index(s, "CREATE TABLE"); at >= 0 && strings.Contains(strings.SplitN(s[at:], "(", 2)[0], table) {
			return s[at:]
		}
	}
	t.Fatalf("no table %s", table)
	return ""
}

func (p planted) trigger(table string) string {
	switch p.e {
	case dbtest.Postgres:
		return `CREATE TRIGGER t BEFORE INSERT ON ` + table + ` FOR EACH ROW EXECUTE FUNCTION took()`
	case dbtest.SQLite:
		return `CREATE TRIGGER t BEFORE INSERT ON ` + table + ` BEGIN INSERT INTO loot VALUES ('taken'); END`
	default:
		return `CREATE TRIGGER t BEFORE INSERT ON ` + table + ` FOR EACH ROW INSERT INTO loot VALUES (CURRENT_USER())`
	}
}

// TestPlanted checks that the migrations run nothing that another user has put where their tables go.
func TestPlanted(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		dbtest.Needs(t, e, dbtest.Triggers)
		for _, table := range []string{"holdfast_records", "holdfast_floor", "holdfast_schema"} {
			p := plant(t, e)
			p.as(create(t, e, table), p.trigger(table))
			p.refused(table, "trigger")
		}
		versions := `CREATE TABLE holdfast_migrations (version BIGINT NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)`
		p := plant(t, e)
		p.as(versions, p.trigger("holdfast_migrations"))
		p.refused("holdfast_migrations", "trigger")

		p = plant(t, e)
		p.as(`CREATE VIEW holdfast_migrations AS SELECT 1 AS version, 2 = 2 AS dirty`)
		p.refused("holdfast_migrations", "kind")

		p = plant(t, e)
		p.as(strings.Replace(create(t, e, "holdfast_records"), "PRIMARY KEY (owner, key_hash)", "PRIMARY KEY (key_hash)", 1))
		p.refused("holdfast_records", "unique")
	})
}

// TestPlantedOwner checks that a table of another user is refused even if it is like Holdfast's: its owner
// may add a trigger at any moment.
func TestPlantedOwner(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // no owners, or functions of the engine come first
		}
		p := plant(t, e)
		p.as(create(t, p.e, "holdfast_records"))
		p.refused("holdfast_records", "belongs to "+p.role)
		p.as(`DROP TABLE holdfast_records`, `CREATE TABLE holdfast_migrations (version BIGINT NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)`)
		p.refused("holdfast_migrations", "belongs to "+p.role)
		p.as(`DROP TABLE holdfast_migrations`)
		must(t, migrations.Up(t.Context(), p.pool))

		// Where nothing is missing, nothing is written, and another user may ask.
		p.run(`GRANT SELECT ON holdfast_migrations TO ` + p.role)
		p.run(`SET ROLE ` + p.role)
		must(t, migrations.Up(t.Context(), p.pool))
		p.run(`RESET ROLE`)
	})
}

// TestPlantedFunctions checks that functions in the schema of the tables are not mistaken for PostgreSQL's.
func TestPlantedFunctions(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // no owners, or functions of the engine come first
		}
		p := plant(t, e)
		body := ` LANGUAGE plpgsql AS 'BEGIN INSERT INTO loot VALUES (current_user); RETURN NULL; END'`
		p.as(`CREATE FUNCTION lpad(text, integer, text) RETURNS text`+body, `CREATE FUNCTION to_hex(integer) RETURNS text`+body,
			`CREATE FUNCTION gen_random_uuid() RETURNS uuid`+body, `CREATE FUNCTION decode(text, text) RETURNS bytea`+body)
		must(t, migrations.Up(t.Context(), p.pool))
		if n := scan[int](t, p.pool, `SELECT COUNT(*) FROM loot`); n != 0 {
			t.Errorf("what was planted ran %d times", n)
		}
	})
}

// TestPlantedClientFunctions checks that no function of another user is replaced: its owner could change it
// again, and clients would call it.
func TestPlantedClientFunctions(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.Postgres {
			return // who may replace a routine may do so at any time
		}
		for what, planted := range map[string]string{
			"function holdfast_key_hash": `CREATE FUNCTION holdfast_key_hash(namespace text, owner text, operation text, key bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea'`,
			"function holdfast_claim": `CREATE FUNCTION holdfast_claim(namespace text, owner text, operation text, key bytea, fingerprint text, version integer, wait_us bigint) RETURNS text LANGUAGE sql AS 'SELECT NULL::text';
COMMENT ON FUNCTION holdfast_claim(text, text, text, bytea, text, integer, bigint) IS 'holdfast functions 1000 00'`,
			"table holdfast_calls": `CREATE TABLE holdfast_calls (kind text)`,
		} {
			p := plant(t, e)
			must(t, migrations.Up(t.Context(), p.pool))
			p.as(planted)
			err := migrations.FunctionsUp(t.Context(), p.pool)
			if !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), what+" belongs to "+p.role) {
				t.Errorf("%s: got %v", what, err)
			}
		}
	})
}

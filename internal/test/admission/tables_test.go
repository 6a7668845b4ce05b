package admission_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// TestOwnTables uses Holdfast's tables with a different shape than the migrations create, at
// Open and at the first use of tables that were created after it.
func TestOwnTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		on     on
		plant  []string
		says   string
		breaks func(t *testing.T, db *holdfast.DB[*sql.Tx], pool *sql.DB)
	}{
		{"records without their key", innodb, []string{`ALTER TABLE holdfast_records DROP PRIMARY KEY`}, "holdfast_records has no unique owner, key_hash", executedTwice},
		{"records without their key", postgres, []string{`ALTER TABLE holdfast_records DROP CONSTRAINT holdfast_records_pkey`}, "holdfast_records has no unique owner, key_hash", nil},
		{"locks without their key", innodb, []string{`ALTER TABLE holdfast_locks DROP PRIMARY KEY`}, "holdfast_locks has no unique owner, name", nil},
		{"a trigger", innodb, []string{`CREATE TRIGGER evil BEFORE INSERT ON holdfast_records FOR EACH ROW SET NEW.state = 2`}, "trigger evil", nil},
		{"a trigger", sqlite, []string{`CREATE TRIGGER evil AFTER INSERT ON holdfast_records BEGIN DELETE FROM holdfast_records; END`}, "trigger evil", executedTwice},
		{"a trigger", postgres, []string{
			`CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`, `CREATE TRIGGER evil AFTER INSERT ON holdfast_records FOR EACH ROW EXECUTE FUNCTION evil()`,
		}, "trigger evil", nil},
		{"a rule", postgres, []string{`CREATE RULE evil AS ON UPDATE TO holdfast_locks DO INSTEAD NOTHING`}, "rule evil", nil},
		{"row level security", postgres, []string{`ALTER TABLE holdfast_records ENABLE ROW LEVEL SECURITY`}, "row level security", nil},
		{"a child", postgres, []string{`CREATE TABLE child () INHERITS (holdfast_records)`}, "inherited by", nil},
		{"unlogged", postgres, []string{`ALTER TABLE holdfast_locks SET UNLOGGED`}, "holdfast_locks has kind unlogged", nil},
		{"another engine", innodb, []string{`ALTER TABLE holdfast_floor ENGINE=MyISAM`}, "holdfast_floor has kind MyISAM", nil},
		{"a column of another type", innodb, []string{`ALTER TABLE holdfast_floor MODIFY token INT NOT NULL`}, "column token int", nil},
		{"one more unique key", on{dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB, dbtest.SQLite}, []string{`CREATE UNIQUE INDEX evil ON holdfast_records (owner)`}, "unique owner", nil},
		{"one more column that must have a value", postgres, []string{`ALTER TABLE holdfast_floor ADD extra integer NOT NULL DEFAULT 0`}, "column extra", nil},
		{"a view in place of a table", postgres, []string{`ALTER TABLE holdfast_waiters RENAME TO aside`, `CREATE VIEW holdfast_waiters AS SELECT * FROM aside`}, "holdfast_waiters has kind", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.on.each(t, func(t *testing.T, url string) {
				pool := dbtest.OpenSQL(t, url)
				before := mustOpen(t, pool, dialect.RuleTables)
				must(t, pool, c.plant...)
				_, err := open(t, pool)
				wantRefused(t, err, dialect.RuleTables)
				if !strings.Contains(err.Error(), c.says) {
					t.Errorf("it does not say %q: %v", c.says, err)
				}
				for what, err := range uses(t, before) {
					if !errors.Is(err, holdfast.ErrUnsupported) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if c.breaks != nil {
					c.breaks(t, mustOpen(t, pool, dialect.RuleTables), pool)
				}
				if c.name == "row level security" { // a later test reuses the database, and the reuse does not undo this setting
					must(t, pool, `ALTER TABLE holdfast_records DISABLE ROW LEVEL SECURITY`)
				}
			})
		})
	}
}

// uses returns the first calls of each package.
func uses(t *testing.T, db *holdfast.DB[*sql.Tx]) map[string]error {
	t.Helper()
	_, records := idempotency.New(t.Context(), db)
	_, locks := sqllock.New(t.Context(), db)
	_, sweep := reaper.New(t.Context(), db)
	_, register := register.New(t.Context(), db)
	return map[string]error{"idempotency": records, "sqllock": locks, "reaper": sweep, "register": register}
}

// executedTwice shows that a key executes again without the rule.
func executedTwice(t *testing.T, db *holdfast.DB[*sql.Tx], pool *sql.DB) {
	t.Helper()
	ctx := dialect.Without(t.Context(), dialect.RuleTables)
	for range 2 {
		s, err := idempotency.New(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		op := idempotency.Op{Name: "refund", Key: "R-1", NoFingerprint: true}
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = idempotency.DoTx(ctx, s, tx, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO effects (k, n) VALUES ('R-1', 1)`)
			return "done", err
		})
		_ = tx.Commit()
	}
	if n := count(t, pool, `SELECT COUNT(*) FROM effects`); n == 1 {
		t.Error("without the rule nothing breaks")
	}
}

// TestTables opens the user's own tables, in each package that accepts one. They cannot roll
// back, or their unique keys do not cover all rows that the statements see.
func TestTables(t *testing.T) {
	t.Parallel()
	const columns = ` (refund_no VARCHAR(64) NOT NULL PRIMARY KEY, amount BIGINT NOT NULL, version BIGINT NOT NULL, expires BIGINT)`
	table := `CREATE TABLE own` + strings.Replace(columns, "VARCHAR(64)", "VARBINARY(64)", 1)
	for _, c := range []struct {
		name  string
		on    on
		plant []string
	}{
		{"MyISAM", innodb, []string{table + ` ENGINE=MyISAM`}},
		{"MEMORY", innodb, []string{table + ` ENGINE=MEMORY`}},
		{"Aria", mariadb, []string{table + ` ENGINE=Aria`}},
		{"a view", innodb, []string{strings.Replace(table, "own", "aside", 1), `CREATE VIEW own AS SELECT * FROM aside`}},
		{"unlogged", postgres, []string{`CREATE UNLOGGED TABLE own` + columns}},
		{"a view", postgres, []string{`CREATE TABLE aside` + columns, `CREATE VIEW own AS SELECT * FROM aside`}},
		{"an inheritance parent", postgres, []string{`CREATE TABLE own` + columns, `CREATE TABLE child () INHERITS (own)`}},
		{"an unlogged partition", postgres, []string{
			`CREATE TABLE own` + columns + ` PARTITION BY LIST (refund_no)`, `CREATE UNLOGGED TABLE part PARTITION OF own DEFAULT`,
		}},
		{"a view", sqlite, []string{`CREATE TABLE aside` + columns, `CREATE VIEW own AS SELECT * FROM aside`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.on.each(t, func(t *testing.T, url string) {
				pool := dbtest.OpenSQL(t, url)
				must(t, pool, c.plant...)
				db := mustOpen(t, pool)
				for what, err := range ownTable(t, db) {
					if !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), "table own is ") {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
	for _, c := range []struct {
		name  string
		on    on
		plant []string
	}{
		{"a partitioned table", postgres, []string{`CREATE TABLE own` + columns + ` PARTITION BY HASH (refund_no)`, `CREATE TABLE part PARTITION OF own FOR VALUES WITH (MODULUS 1, REMAINDER 0)`}},
		{"a child", postgres, []string{`CREATE TABLE parent (refund_no VARCHAR(64) NOT NULL, amount BIGINT NOT NULL)`, `CREATE TABLE own (PRIMARY KEY (refund_no), version BIGINT NOT NULL, expires BIGINT) INHERITS (parent)`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.on.each(t, func(t *testing.T, url string) {
				pool := dbtest.OpenSQL(t, url)
				must(t, pool, c.plant...)
				for what, err := range ownTable(t, mustOpen(t, pool)) {
					if err != nil && what != "reaper" { // reaper requires an index on the expiry
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
}

type own struct {
	No      string `db:"refund_no"`
	Amount  int64  `db:"amount"`
	Version int64  `db:"version"`
}

// ownTable returns the errors of the packages that open the table own.
func ownTable(t *testing.T, db *holdfast.DB[*sql.Tx]) map[string]error {
	t.Helper()
	key := []string{"refund_no"}
	_, row := businessrow.New[own](t.Context(), db, holdfast.TableSpec{Table: "own", Key: key})
	_, versioned := optimistic.New[own](t.Context(), db, holdfast.TableSpec{Table: "own", Key: key})
	_, locked := rowlock.NewTable[own](t.Context(), db, holdfast.TableSpec{Table: "own", Key: key})
	_, swept := reaper.New(t.Context(), db, reaper.Options{Tables: []reaper.Table{{TableSpec: holdfast.TableSpec{Table: "own", Key: key}, Expires: "expires", Unit: reaper.Microseconds}}})
	return map[string]error{"business row": row, "versioned row": versioned, "locked row": locked, "reaper": swept}
}

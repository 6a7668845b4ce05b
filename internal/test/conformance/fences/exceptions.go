package fences

import (
	"cmp"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
)

// exceptions checks that what the package lists as not seen is not seen, and all else is.
func exceptions[Tx any](e *env[Tx]) {
	orders := e.orders("a", "b")
	e.Must(`CREATE TABLE items (id ` + e.Text() + ` NOT NULL PRIMARY KEY, order_id ` + e.Text() + ` NOT NULL, fence BIGINT NOT NULL DEFAULT 0,
 FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE)`)
	e.Must(`INSERT INTO items (id, order_id) VALUES ($1, $2)`, e.TextKey("i"), e.TextKey("a"))
	items := e.fence(fence.Spec{Table: "items", Key: "item/{id}"})
	e.enforce(items)
	conn, err := e.SQL.Conn(e.Ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	on := func(query string, args ...any) error {
		_, err := conn.ExecContext(e.Ctx, e.Rebind(query), args...)
		return err
	}
	// The cascade of a foreign key deletes items.
	cascade := on(`DELETE FROM orders WHERE id = $1`, e.TextKey("a"))
	if e.Engine == dbtest.SQLite {
		e.wantPassed("PRAGMA", on(`PRAGMA foreign_keys = ON`))
		e.Must(`INSERT INTO orders (id, state) VALUES ('a', 'new') ON CONFLICT DO NOTHING`)
		cascade = on(`DELETE FROM orders WHERE id = 'a'`)
	}
	if e.InnoDB() {
		e.wantPassed("a cascade", cascade)
	} else {
		e.wantRefused("a cascade", cascade)
	}
	e.Must(map[bool]string{true: `ALTER TABLE items DROP FOREIGN KEY ` + e.foreignKey(), false: `DROP TABLE items`}[e.InnoDB()])
	e.enforce(orders)

	// REPLACE deletes and inserts. Both are seen, but for the deletion on SQLite.
	if e.Engine != dbtest.Postgres {
		e.wantRefused("REPLACE", on(`REPLACE INTO orders (id, state) VALUES ($1, 'stale')`, e.TextKey("b")))
		e.wantState("b", "new")
	}
	switch e.Engine {
	case dbtest.SQLite:
		e.wantPassed("Unenforce", orders.Unenforce(e.Ctx))
		loose := e.fence(fence.Spec{Table: "orders", Key: "order/{id}", UnfencedInserts: true})
		e.enforce(loose)
		e.wantPassed("REPLACE of an unfenced insert", on(`REPLACE INTO orders (id, state) VALUES ('b', 'replaced')`))
		e.wantPassed("PRAGMA", on(`PRAGMA recursive_triggers = ON`))
		e.wantRefused("the same with recursive_triggers", on(`REPLACE INTO orders (id, state) VALUES ('b', 'stale')`))
		e.wantState("b", "replaced")
		return // it has no TRUNCATE
	case dbtest.Postgres:
		e.wantRefused("MERGE", e.merge(on))
		e.wantPassed("SET", on(`SET session_replication_role = replica`))
		e.wantPassed("a session that is a replica", on(`UPDATE orders SET state = 'replica'`))
		e.wantPassed("RESET", on(`RESET session_replication_role`))
		e.wantPassed("DISABLE TRIGGER", on(`ALTER TABLE orders DISABLE TRIGGER ALL`))
		e.wantPassed("a disabled trigger", on(`UPDATE orders SET state = 'disabled'`))
		if err := orders.CheckEnforced(e.Ctx); !errors.Is(err, fence.ErrNotEnforced) {
			e.Errorf("a disabled trigger: %v", err)
		}
		e.enforce(orders)
		e.partitions()
	}
	e.wantRefused("a superuser", on(`UPDATE orders SET state = 'stale'`))
	e.wantPassed("TRUNCATE", on(`TRUNCATE TABLE orders`))
	e.wantState("b", "")
}

// partitions moves a row to another partition, which is a deletion and an insertion.
func (e *env[Tx]) partitions() {
	e.Helper()
	e.Must(`CREATE TABLE parts (id INT NOT NULL, region INT NOT NULL, fence BIGINT NOT NULL DEFAULT 0) PARTITION BY LIST (region)`)
	e.Must(`CREATE TABLE part1 PARTITION OF parts FOR VALUES IN (1)`)
	e.Must(`CREATE TABLE part2 PARTITION OF parts FOR VALUES IN (2)`)
	parts := e.fence(fence.Spec{Table: "parts", Key: "part/{id}"})
	e.enforce(parts)
	e.wantPassed("CheckEnforced", parts.CheckEnforced(e.Ctx))
	l := e.LockerWith(sqllock.Options{})
	first := e.MustAcquire(l, "part/7")
	e.wantPassed("insert", e.raw(`INSERT INTO parts VALUES (7, 1, $1)`, first.Token()))
	e.MustRelease(first)
	next := e.MustAcquire(l, "part/7")
	e.wantRefused("a stale write of a partition", e.raw(`UPDATE part1 SET fence = $1`, first.Token()))
	e.wantRefused("a move of a row that an earlier term wrote", e.raw(`UPDATE parts SET region = 2, fence = $1`, next.Token()))
	e.wantPassed("update", e.raw(`UPDATE parts SET fence = $1`, next.Token()))
	e.wantPassed("then a move", e.raw(`UPDATE parts SET region = 2`))
}

func (e *env[Tx]) foreignKey() (name string) {
	if e.InnoDB() {
		row := e.SQL.QueryRowContext(e.Ctx, `SELECT constraint_name FROM information_schema.table_constraints WHERE table_schema = DATABASE() AND table_name = 'items' AND constraint_type = 'FOREIGN KEY'`)
		if err := row.Scan(&name); err != nil {
			e.Fatal(err)
		}
	}
	return name
}

// merge runs MERGE, which PostgreSQL has from 15 on, or an UPDATE that joins.
func (e *env[Tx]) merge(on func(query string, args ...any) error) error {
	if e.Int(`SELECT current_setting('server_version_num')::int`) < 150000 {
		return on(`UPDATE orders SET state = 'stale' FROM (VALUES ('b')) v (id) WHERE v.id = orders.id`)
	}
	return on(`MERGE INTO orders o USING (VALUES ('b')) v (id) ON o.id = v.id WHEN MATCHED THEN UPDATE SET state = 'stale'`)
}

// bulk checks the statements that load many rows: COPY and LOAD DATA.
func bulk[Tx any](e *env[Tx]) {
	orders := e.orders()
	e.enforce(orders)
	lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a")
	e.wantRefused("INSERT ... SELECT", e.raw(`INSERT INTO orders (id, state, fence) SELECT $1, 'stale', 0`, e.TextKey("a")))
	e.wantRefused("several rows, one of which is not fenced", e.raw(`INSERT INTO orders (id, state, fence) VALUES ($1, 'x', $2), ($3, 'x', $4)`,
		e.TextKey("a"), lease.Token(), e.TextKey("b"), lease.Token()))
	e.wantState("a", "")
	switch {
	case e.Engine == dbtest.Postgres:
		// COPY from a file of the server, which all servers have: its lines are text.
		e.Must(`CREATE TABLE lines (id text NOT NULL, fence BIGINT NOT NULL DEFAULT 0)`)
		e.enforce(e.fence(fence.Spec{Table: "lines", Key: "line/{id}"}))
		e.wantRefused("COPY", e.raw(`COPY lines (id) FROM PROGRAM 'echo a'`))
	case e.InnoDB():
		if loaded, err := e.loadData(); loaded {
			e.wantRefused("LOAD DATA", err)
		}
	}
	e.wantState("a", "")
}

// loadData loads an order from a file of the server, which it writes first. It returns false where
// the server may do neither.
func (e *env[Tx]) loadData() (loaded bool, err error) {
	e.Helper()
	var folder sql.NullString
	if err := e.SQL.QueryRowContext(e.Ctx, `SELECT @@secure_file_priv`).Scan(&folder); err != nil {
		e.Fatal(err)
	}
	if !folder.Valid && e.Engine == dbtest.MySQL { // on MariaDB, NULL is every folder
		return false, nil
	}
	file := `'` + cmp.Or(folder.String, "/tmp/") + e.Schema() + `'`
	e.Must(`SELECT 'a', 'stale', 0 INTO OUTFILE ` + file)
	return true, e.raw(`LOAD DATA INFILE ` + file + ` INTO TABLE orders`)
}

// isChecked removes, disables or changes a trigger. CheckEnforced detects it, and Enforce repairs it.
func isChecked[Tx any](e *env[Tx]) {
	orders := e.orders("a")
	var missing *fence.EnforceError
	if err := orders.CheckEnforced(e.Ctx); !errors.As(err, &missing) || !errors.Is(err, fence.ErrNotEnforced) {
		e.Fatalf("before Enforce: %v", err)
	}
	var wg sync.WaitGroup
	for range 4 { // several programs start at once
		wg.Go(func() {
			if err := orders.Enforce(e.Ctx); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	trigger := missing.Trigger
	spoils := map[string][]string{}
	if e.Engine == dbtest.Postgres {
		spoils["does not exist"] = []string{`DROP TRIGGER ` + trigger + ` ON orders`}
		spoils["disabled"] = []string{`ALTER TABLE orders DISABLE TRIGGER ` + trigger}
		spoils["is not the one"] = []string{`CREATE OR REPLACE FUNCTION ` + trigger + `() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`}
		spoils["that this version of Holdfast creates"] = []string{`ALTER FUNCTION ` + trigger + `() SECURITY INVOKER`}
		spoils["call Enforce to replace it"] = []string{`ALTER FUNCTION ` + trigger + `() RESET search_path`}
	} else {
		trigger = strings.TrimSuffix(trigger, "_i") + "_u"
		spoils["does not exist"] = []string{`DROP TRIGGER ` + trigger}
		each := ` FOR EACH ROW SET @x = 1`
		if e.Engine == dbtest.SQLite {
			each = ` BEGIN SELECT 1; END`
		}
		spoils["is not the one"] = []string{`DROP TRIGGER ` + trigger, `CREATE TRIGGER ` + trigger + ` AFTER UPDATE ON orders` + each}
		spoils["that this version of Holdfast creates"] = []string{`DROP TRIGGER ` + trigger, `CREATE TRIGGER ` + trigger + ` BEFORE INSERT ON orders` + each}
	}
	for why, statements := range spoils {
		for _, s := range statements {
			e.Must(s)
		}
		if err := orders.CheckEnforced(e.Ctx); !errors.Is(err, fence.ErrNotEnforced) || !strings.Contains(err.Error(), why) {
			e.Errorf("%s: got %v", why, err)
		}
		if err := orders.Enforce(e.Ctx); err != nil {
			e.Errorf("%s: %v", why, err)
		}
		e.wantPassed(why, orders.CheckEnforced(e.Ctx))
		e.wantRefused(why, e.update("a", "stale", 1))
	}
}

// privileges runs the writes as a user who may not touch Holdfast's tables. Without the rights of
// the trigger's owner, such a user could write nothing.
func privileges[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		return // it has no users
	}
	orders := e.orders("a")
	user := regexp.MustCompile(`hf_[a-z0-9]+`).FindString(e.DSN) + "_f"
	if e.Engine == dbtest.Postgres {
		e.Must(`CREATE ROLE ` + user + ` LOGIN PASSWORD 'pw'`)
		defer e.Must(`DROP OWNED BY ` + user + `; DROP ROLE ` + user)
		e.Must(`GRANT SELECT, INSERT, UPDATE, DELETE ON orders TO ` + user)
		e.Must(`GRANT USAGE ON SCHEMA "` + e.Schema() + `" TO ` + user)
		e.Must(`GRANT SELECT ON holdfast_schema TO ` + user)
	} else {
		e.Must(`CREATE USER ` + user + ` IDENTIFIED BY 'pw'`)
		defer e.Must(`DROP USER ` + user)
		e.Must(`GRANT SELECT, INSERT, UPDATE, DELETE ON ` + e.Schema() + `.orders TO ` + user)
		e.Must(`GRANT SELECT ON ` + e.Schema() + `.holdfast_schema TO ` + user)
	}
	dsn := regexp.MustCompile(`//[^@]*@`).ReplaceAllString(e.DSN, "//"+user+":pw@")
	plain := dbtest.OpenSQL(e, dsn)
	plain.SetMaxOpenConns(1)
	write := func(token int64) error {
		_, err := plain.ExecContext(e.Ctx, e.Rebind(`UPDATE orders SET state = 'plain', fence = $1 WHERE id = $2`), token, e.TextKey("a"))
		return err
	}
	if _, err := plain.ExecContext(e.Ctx, `SELECT token FROM holdfast_locks`); err == nil {
		e.Error("the user may read the locks")
	}
	for _, s := range orders.EnforceSQL() { // as an administrator
		e.Must(s)
	}
	e.wantPassed("CheckEnforced", orders.CheckEnforced(e.Ctx))
	lease := e.MustAcquire(e.LockerWith(sqllock.Options{}), "order/a")
	e.wantRefused("a stale write", write(lease.Token()-1))
	e.wantPassed("the holder", write(lease.Token()))
	e.wantState("a", "plain")
	if e.Engine == dbtest.Postgres {
		// No other user can have the function read locks.
		if n := e.Int(`SELECT count(*) FROM pg_proc WHERE proname LIKE 'holdfast_fence_%' AND pronamespace = current_schema()::regnamespace AND has_function_privilege('` + user + `', oid, 'EXECUTE')`); n != 0 {
			e.Errorf("%s may use %d of the functions", user, n)
		}
		// A search path of the caller's changes nothing.
		_, err := plain.ExecContext(e.Ctx, `CREATE TEMPORARY TABLE holdfast_locks (owner text, name bytea, token bigint, attempt bytea); INSERT INTO holdfast_locks VALUES ('', 'lorder/a', 5, ''); SET search_path = pg_temp, "`+e.Schema()+`"`)
		e.wantPassed("a table of its own", err)
		e.wantRefused("with its own table of locks", write(5))
	} else {
		// On MySQL and MariaDB a temporary table hides the real one also from a trigger. It takes a
		// separate privilege.
		const own = `CREATE TEMPORARY TABLE holdfast_locks (owner VARBINARY(128), name VARBINARY(1025), token BIGINT, attempt BINARY(16))`
		if _, err := plain.ExecContext(e.Ctx, own); access.Of(e.DB).Dialect.Classify(err) != dialect.Denied {
			e.Errorf("a temporary table: %v", err)
		}
		e.Must(`GRANT CREATE TEMPORARY TABLES ON ` + e.Schema() + `.* TO ` + user)
		plain.SetMaxIdleConns(0) // the next session has the privilege
		plain.SetMaxIdleConns(1)
		_, err := plain.ExecContext(e.Ctx, own)
		e.wantPassed("a temporary table", err)
		_, err = plain.ExecContext(e.Ctx, `INSERT INTO holdfast_locks VALUES ('', 'lorder/a', ?, '')`, lease.Token()+1)
		e.wantPassed("a row of its own", err)
		e.wantPassed("with its own table of locks", write(lease.Token()+1))
	}

	// The error of a user who may not make the trigger says what is missing.
	pool := e.Handle.Open(e.T, dsn)
	defer pool.Close()
	denied, err := fence.New(e.Ctx, pool.DB, fence.Spec{Table: "orders", Key: "x/{id}"})
	if err != nil {
		e.Fatal(err)
	}
	var refused *fence.EnforceError
	if err := denied.Enforce(e.Ctx); !errors.Is(err, fence.ErrNotEnforced) || !errors.As(err, &refused) || refused.Err == nil || !strings.Contains(err.Error(), "TRIGGER") && !strings.Contains(err.Error(), "trigger") {
		e.Errorf("got %v", err)
	}
}

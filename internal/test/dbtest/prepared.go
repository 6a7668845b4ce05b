package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// rowsToClear is the maximum number of rows in a database that is used again. With more
	// rows, a drop is cheaper.
	rowsToClear = 5000
	// sessionsEnd bounds the wait for sessions that should end.
	sessionsEnd = 2 * time.Second
)

// prepared is a database with tables, and a description of its initial state.
type prepared struct {
	database
	name   string
	audit  *sql.DB          // on PostgreSQL
	tables map[string][]row // each table's rows
	shape  []string
}

type row []any

type sort struct {
	engine Engine
	kind   string
}

// spare holds the databases that no test uses: creating the tables again costs more than most
// tests.
var spare struct {
	mu   sync.Mutex
	free map[sort][]*prepared
}

// Prepared returns the URL of a separate database for this test, to which fill has been applied.
// It is a fresh one, or one that an earlier test of this process has used and whose tables and
// rows are restored to their state after fill. A kind has one fill. Call VerifyNoLeaks from
// TestMain: it drops these databases. The pool is for the test's own statements, and the next
// test's.
func Prepared(tb testing.TB, e Engine, kind string, fill func(db *sql.DB)) (string, *sql.DB) {
	tb.Helper()
	if e == SQLite || e == Vitess || !e.available() {
		fresh := DSN(tb, e)
		fillAt(tb, fresh, fill)
		return fresh, OpenSQL(tb, fresh)
	}
	if e.Like() == MySQL {
		showDriverLog(tb)
	}
	server := os.Getenv(e.variable())
	markRan(tb, e, server)
	of := sort{e, kind}
	p := takeSpare(of)
	if p == nil {
		p = &prepared{name: newName()}
		p.database = databaseOf(tb, e, server, p.name)
		if err := runAdmin(server, p.create); err != nil {
			tb.Fatalf("make a database for the test: %v", err)
		}
		if e == Postgres {
			keepSessions(p.name, p.url)
		}
		fillAt(tb, p.url, fill)
		if err := runAdmin(server, func(ctx context.Context, conn *sql.Conn) error { return p.remember(ctx, conn, e) }); err != nil {
			tb.Fatalf("look at the test's database: %v", err)
		}
	}
	tb.Cleanup(func() {
		if !tb.Failed() && (p.audit == nil || p.audit.Stats().InUse == 0) { // after a failure, statements may still run in it
			if err := runAdmin(server, func(ctx context.Context, conn *sql.Conn) error { return p.restore(ctx, conn, e) }); err == nil {
				spare.mu.Lock()
				spare.free[of] = append(spare.free[of], p)
				spare.mu.Unlock()
				return
			}
		}
		if err := p.end(server); err != nil {
			tb.Logf("left behind on %s: %s: %v", e, p.name, err)
		}
	})
	if e != Postgres { // where sessions cost little, and each that is left is ended
		return p.url, OpenSQL(tb, p.url)
	}
	if p.audit == nil {
		var err error
		if p.audit, err = OpenURL(p.url); err != nil {
			tb.Fatal(err)
		}
	}
	return p.url, p.audit
}

// end drops the database.
func (p *prepared) end(server string) error {
	forgetSchema(p.name)
	if p.audit != nil {
		_ = p.audit.Close()
	}
	return runAdmin(server, p.drop)
}

func fillAt(tb testing.TB, url string, fill func(db *sql.DB)) {
	tb.Helper()
	db, err := OpenURL(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	fill(db)
}

func takeSpare(of sort) *prepared {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	if spare.free == nil {
		spare.free = map[sort][]*prepared{}
	}
	free := spare.free[of]
	if len(free) == 0 {
		return nil
	}
	p := free[len(free)-1]
	spare.free[of] = free[:len(free)-1]
	return p
}

// dropSpare drops the remaining databases at the end of the process.
func dropSpare() {
	spare.mu.Lock()
	defer spare.mu.Unlock()
	for of, free := range spare.free {
		for _, p := range free {
			if err := p.end(os.Getenv(of.engine.variable())); err != nil {
				fmt.Fprintf(os.Stderr, "left behind on %s: %s: %v\n", of.engine, p.name, err)
			}
		}
	}
	spare.free = nil
	endSessions()
}

// These queries describe a database: its tables, and a line for each of their parts. They take
// its name as a parameter, so that a session plans them once for all databases.
var (
	tablesOf = map[Engine]string{
		Postgres: `SELECT tablename FROM pg_tables WHERE schemaname = $1`,
		MySQL:    tablesOfMySQL,
	}
	// A statement that defines or grants leaves rows of another transaction in the catalogs.
	shapeOfPostgres = `WITH own AS MATERIALIZED (SELECT oid, xmin FROM pg_class WHERE relnamespace = $1::regnamespace)
			SELECT concat_ws(' ', oid, xmin) FROM own
			UNION ALL SELECT concat_ws(' ', a.attrelid, a.attnum, a.xmin) FROM own JOIN pg_attribute a ON a.attrelid = own.oid
			UNION ALL SELECT concat_ws(' ', d.oid, d.xmin) FROM own JOIN pg_attrdef d ON d.adrelid = own.oid
			UNION ALL SELECT concat_ws(' ', n.oid, n.xmin) FROM own JOIN pg_constraint n ON n.conrelid = own.oid
			UNION ALL SELECT concat_ws(' ', t.oid, t.xmin) FROM own JOIN pg_trigger t ON t.tgrelid = own.oid
			UNION ALL SELECT concat_ws(' ', r.oid, r.xmin) FROM own JOIN pg_rewrite r ON r.ev_class = own.oid
			UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_type WHERE typnamespace = $1::regnamespace
			UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_collation WHERE collnamespace = $1::regnamespace
			UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_proc WHERE pronamespace = $1::regnamespace`
)

const tablesOfMySQL = `SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_TYPE = 'BASE TABLE'`

// shapeOfMySQL are queries of their own: MySQL plans each of these views as a join of many tables, and a
// union of all of them takes it ten times as long as one after the other. The name stands in the text,
// which saves preparing it: a session looks at many databases, and at none twice.
var shapeOfMySQL = []string{
	`SELECT CONCAT_WS(' ', TABLE_NAME, TABLE_TYPE, ENGINE, ROW_FORMAT, TABLE_COLLATION) FROM information_schema.TABLES WHERE TABLE_SCHEMA = {name}`,
	`SELECT CONCAT_WS(' ', TABLE_NAME, ORDINAL_POSITION, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, COLLATION_NAME, COLUMN_DEFAULT, EXTRA) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {name}`,
	`SELECT CONCAT_WS(' ', TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX, COLUMN_NAME, NON_UNIQUE, SUB_PART) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = {name}`,
	`SELECT CONCAT_WS(' ', TABLE_NAME, CONSTRAINT_NAME, CONSTRAINT_TYPE) FROM information_schema.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA = {name}`,
	`SELECT CONCAT_WS(' ', TRIGGER_NAME, EVENT_OBJECT_TABLE) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = {name}`,
	`SELECT CONCAT_WS(' ', ROUTINE_NAME, ROUTINE_TYPE) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = {name}`,
	`SELECT CONCAT_WS(' ', SCHEMA_NAME, DEFAULT_COLLATION_NAME) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = {name}`,
}

// shapeNow returns the description of the database, sorted.
func (p *prepared) shapeNow(ctx context.Context, conn *sql.Conn, e Engine) ([]string, error) {
	if e == Postgres {
		all, err := list(ctx, conn, shapeOfPostgres, p.name)
		slices.Sort(all)
		return all, err
	}
	var all []string
	for _, query := range shapeOfMySQL {
		part, err := list(ctx, conn, strings.ReplaceAll(query, "{name}", "'"+p.name+"'"))
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
	}
	slices.Sort(all)
	return all, nil
}

// remember stores a description of the database.
func (p *prepared) remember(ctx context.Context, conn *sql.Conn, e Engine) error {
	names, err := list(ctx, conn, tablesOf[e.Like()], p.name)
	if err != nil {
		return err
	}
	p.tables = map[string][]row{}
	for _, name := range names {
		if p.tables[name], err = rowsOf(ctx, conn, p.name+"."+name); err != nil {
			return err
		}
	}
	p.shape, err = p.shapeNow(ctx, conn, e)
	return err
}

// restore restores the database to that state; an error says that this is not possible.
func (p *prepared) restore(ctx context.Context, conn *sql.Conn, e Engine) error {
	if err := p.endSessions(ctx, conn, e); err != nil {
		return err
	}
	names, err := list(ctx, conn, tablesOf[e.Like()], p.name)
	if err != nil {
		return err
	}
	bound := "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
	if e == Postgres {
		bound = "SET lock_timeout = '1s'"
	}
	if _, err := conn.ExecContext(ctx, bound); err != nil {
		return err
	}
	for _, name := range names {
		if _, was := p.tables[name]; !was {
			if _, err := conn.ExecContext(ctx, "DROP TABLE "+p.name+"."+name); err != nil {
				return err
			}
		}
	}
	shape, err := p.shapeNow(ctx, conn, e)
	if err != nil {
		return err
	}
	if !slices.Equal(shape, p.shape) {
		return errors.New("its tables were changed")
	}
	return p.restoreRows(ctx, conn, e)
}

func (p *prepared) restoreRows(ctx context.Context, conn *sql.Conn, e Engine) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for name, rows := range p.tables {
		r, err := tx.ExecContext(ctx, "DELETE FROM "+p.name+"."+name)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n > rowsToClear {
			return errors.Join(errors.New("it has many rows"), err)
		}
		for _, values := range rows {
			if _, err := tx.ExecContext(ctx, "INSERT INTO "+p.name+"."+name+" VALUES "+placeholders(e, len(values)), values...); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

func placeholders(e Engine, n int) string {
	var marks []string
	for i := range n {
		mark := "?"
		if e == Postgres {
			mark = fmt.Sprintf("$%d", i+1)
		}
		marks = append(marks, mark)
	}
	return "(" + strings.Join(marks, ", ") + ")"
}

// endSessions ends the sessions that a test has left, and waits until they are gone.
func (p *prepared) endSessions(ctx context.Context, conn *sql.Conn, e Engine) error {
	if e == Postgres {
		return endPostgresSessions(ctx, conn, p.name)
	}
	for end := time.Now().Add(sessionsEnd); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ended, err := endMySQLSessions(ctx, conn, e, p.name)
		if err != nil || ended == 0 {
			return err
		}
	}
	return errors.New("a session does not end")
}

// list returns the first column of a query.
func list(ctx context.Context, conn *sql.Conn, query string, args ...any) (all []string, err error) {
	rows, err := conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

func rowsOf(ctx context.Context, conn *sql.Conn, table string) (all []row, err error) {
	rows, err := conn.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, into := make(row, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				values[i] = slices.Clone(b)
			}
		}
		all = append(all, values)
	}
	return all, rows.Err()
}

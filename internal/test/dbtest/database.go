package dbtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

const (
	// dropWait bounds how long a drop waits for sessions that still hold locks.
	dropWait = 20 * time.Second
	// adminTimeout bounds the work around a test, including the wait of a drop.
	adminTimeout = Hang
)

// DSN makes a fresh database for this test and returns its URL: a new schema on PostgreSQL, a
// new database on MySQL and MariaDB, a new file for SQLite. It is dropped when the test ends.
func DSN(tb testing.TB, e Engine) string {
	tb.Helper()
	if !e.available() {
		tb.Fatal(e.missing())
	}
	if e.Like() == MySQL {
		showDriverLog(tb)
	}
	name := newName()
	if e == SQLite {
		fresh := "sqlite://" + filepath.Join(tb.TempDir(), name+".db")
		markRan(tb, e, fresh)
		return fresh
	}

	server := os.Getenv(e.variable())
	markRan(tb, e, server)
	d := databaseOf(tb, e, server, name)
	if err := runAdmin(server, d.create); err != nil {
		tb.Fatalf("make a database for the test: %v", err)
	}
	if e == Postgres {
		keepSessions(name, d.url)
	}
	tb.Cleanup(func() {
		forgetSchema(name)
		// Sessions that a test leaves running must not fail the test here: the leak check and
		// the test's own assertions detect them.
		if err := runAdmin(server, d.drop); err != nil {
			tb.Logf("left behind on %s: %s: %v", e, name, err)
		}
	})
	return d.url
}

func newName() string { return "hf_" + strings.ToLower(rand.Text()[:16]) }

// database is the SQL that creates and drops a test's database.
type database struct {
	url          string
	create, drop func(context.Context, *sql.Conn) error
}

func databaseOf(tb testing.TB, e Engine, server, name string) database {
	tb.Helper()
	if e == Postgres {
		u, err := url.Parse(server)
		if err != nil {
			tb.Fatalf("%s is not a URL", e.variable())
		}
		query := u.Query()
		query.Set("search_path", name)
		u.RawQuery = query.Encode()
		drop := func(wait time.Duration) func(context.Context, *sql.Conn) error {
			return statements(fmt.Sprintf("SET lock_timeout = %d", wait.Milliseconds()), "DROP SCHEMA IF EXISTS "+name+" CASCADE")
		}
		return database{u.String(), statements("CREATE SCHEMA " + name), func(ctx context.Context, conn *sql.Conn) error {
			// A session that ends its statement just now may be another test's by the time that
			// it is told to end.
			if drop(dropWait/10)(ctx, conn) == nil {
				return nil
			}
			if err := endPostgresSessions(ctx, conn, name); err != nil {
				return err
			}
			return drop(dropWait)(ctx, conn)
		}}
	}
	config, err := mysqldriver.ParseDSN(strings.TrimPrefix(server, "mysql://"))
	if err != nil {
		tb.Fatalf("%s is not of the form mysql://user:password@tcp(host:port)/database", e.variable())
	}
	if e == Vitess {
		return keyspace(tb, *config)
	}
	config.DBName = name
	drop := statements(
		fmt.Sprintf("SET SESSION lock_wait_timeout = %d", int(dropWait.Seconds())),
		"DROP DATABASE IF EXISTS "+name)
	return database{
		"mysql://" + config.FormatDSN(),
		statements("CREATE DATABASE " + name + " CHARACTER SET utf8mb4"),
		func(ctx context.Context, conn *sql.Conn) error {
			if _, err := endMySQLSessions(ctx, conn, e, name); err != nil {
				return err
			}
			return drop(ctx, conn)
		},
	}
}

// keyspacesVariable lists the keyspaces of Vitess that tests may use, one at a time: a router takes
// half a minute to make another.
const keyspacesVariable = "HOLDFAST_TEST_VITESS_KEYSPACES"

var keyspaces = sync.OnceValue(func() chan string {
	names := strings.Split(os.Getenv(keyspacesVariable), ",")
	free := make(chan string, len(names))
	for _, name := range names {
		free <- name
	}
	return free
})

// keyspace takes a keyspace, and gives it back when its tables are dropped.
func keyspace(tb testing.TB, config mysqldriver.Config) database {
	tb.Helper()
	free := keyspaces()
	name := <-free
	config.DBName = name
	empty := func(ctx context.Context, conn *sql.Conn) error {
		tables, err := list(ctx, conn, `SELECT table_name FROM information_schema.tables WHERE table_schema = '`+name+`'`)
		for _, table := range tables {
			if _, e := conn.ExecContext(ctx, "DROP TABLE "+name+".`"+strings.ReplaceAll(table, "`", "``")+"`"); e != nil {
				err = errors.Join(err, e)
			}
		}
		return err
	}
	return database{"mysql://" + config.FormatDSN(), empty, func(ctx context.Context, conn *sql.Conn) error {
		err := empty(ctx, conn)
		if err == nil {
			free <- name
		}
		return err
	}}
}

// endPostgresSessions ends the sessions that hold locks in the schema: a client that a test
// froze or cut off would block the drop. Predicate locks block nothing, and their session may be
// another test's by now.
func endPostgresSessions(ctx context.Context, conn *sql.Conn, name string) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE mode <> 'SIReadLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
		AND relation IN (SELECT oid FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1))`, name)
	if err != nil {
		return fmt.Errorf("end sessions: %w", err)
	}
	return nil
}

// endMySQLSessions ends the other sessions in the database, for the same reason, and returns
// their number.
func endMySQLSessions(ctx context.Context, conn *sql.Conn, e Engine, name string) (int, error) {
	rows, err := conn.QueryContext(ctx, "SELECT id FROM "+e.Sessions()+" WHERE db = ? AND id <> CONNECTION_ID()", name)
	if err != nil {
		return 0, fmt.Errorf("list sessions: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return 0, fmt.Errorf("list sessions: %w", err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("list sessions: %w", err)
	}
	if slices.Contains(scaleOut, e) { // KILL of a session with a transaction ends TiDB 8.4's process
		return len(ids), nil
	}
	for _, id := range ids {
		_, _ = conn.ExecContext(ctx, fmt.Sprintf("KILL %d", id)) // it may have ended already
	}
	return len(ids), nil
}

// statements returns a function that runs the statements in order.
func statements(list ...string) func(context.Context, *sql.Conn) error {
	return func(ctx context.Context, conn *sql.Conn) error {
		for _, statement := range list {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%.60s: %w", statement, err)
			}
		}
		return nil
	}
}

// administration keeps a pool for each PostgreSQL server that tests use: a new session is a new
// process, which reads the catalogs anew for each of its first statements.
var administration struct {
	mu    sync.Mutex
	pools map[string]*sql.DB
}

// runAdmin runs f on a session of the server.
func runAdmin(server string, f func(context.Context, *sql.Conn) error) error {
	// The test's own context has ended when its cleanup runs.
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if !strings.HasPrefix(server, "postgres") {
		return withConn(ctx, server, func(conn *sql.Conn) error { return f(ctx, conn) })
	}
	administration.mu.Lock()
	db := administration.pools[server]
	if db == nil {
		var err error
		if db, _, err = dsn.Open(server); err != nil {
			administration.mu.Unlock()
			return fmt.Errorf("open: %w", err)
		}
		db.SetMaxIdleConns(4)
		if administration.pools == nil {
			administration.pools = map[string]*sql.DB{}
		}
		administration.pools[server] = db
	}
	administration.mu.Unlock()
	for {
		conn, err := db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if err := conn.PingContext(ctx); errors.Is(err, driver.ErrBadConn) { // the server was restarted
			_ = conn.Close()
			continue
		}
		err = f(ctx, conn)
		_ = conn.Close()
		return err
	}
}

// endAdmin closes the pools of runAdmin.
func endAdmin() {
	administration.mu.Lock()
	defer administration.mu.Unlock()
	for _, db := range administration.pools {
		_ = db.Close()
	}
	administration.pools = nil
}

// withConn runs f on a session and then closes the session.
func withConn(ctx context.Context, server string, f func(*sql.Conn) error) error {
	db, _, err := dsn.Open(server)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return f(conn)
}

package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	"github.com/holdfast-go/holdfast/internal/dialect/mysql"
	"github.com/holdfast-go/holdfast/internal/dialect/postgres"
	"github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// wire records what a pool's connections send: each driver call that goes to the server, with
// its arguments, and each write to the network. A write is a round trip, because the driver
// reads the answer before it writes again.
type wire struct {
	writes atomic.Int64
	mu     sync.Mutex
	calls  []call
}

type call struct {
	text string
	args []any
}

// admissions are sent once for each connection, whenever the pool opens one.
var admissions = []string{
	postgres.Dialect.Admission.Facts, mysql.Dialect.Admission.Facts, mariadb.Dialect.Admission.Facts, sqlite.Dialect.Admission.Facts,
	mysql.ReadClockAgain(dialect.Facts{}),
}

func (w *wire) saw(text string, args []any) {
	bare := strings.TrimPrefix(text, "PREPARE ")
	if slices.ContainsFunc(admissions, func(a string) bool { return a != "" && strings.HasPrefix(bare, a) }) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, call{text, args})
}

// take returns what was recorded since the last call of take.
func (w *wire) take() (calls []call, writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls, w.calls = w.calls, nil
	return calls, int(w.writes.Swap(0))
}

type countedNet struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedNet) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return countedNet{c, &w.writes}, nil
}

// handle returns a handle of database/sql whose pools w records.
func (w *wire) handle(conns int) conformance.Handle[*sql.Tx] {
	h := conformance.SQL()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[*sql.Tx] {
		tb.Helper()
		pool := sql.OpenDB(w.connector(tb, dsn))
		pool.SetMaxOpenConns(conns)
		pool.SetMaxIdleConns(conns)
		tb.Cleanup(func() { _ = pool.Close() })
		return conformance.SQLPool(tb, pool, opts...)
	}
	return h
}

// connector connects as the DSN says, and makes MySQL's driver write the parameters into the
// statement: a prepared statement would take another round trip and a close.
func (w *wire) connector(tb testing.TB, dsn string) driver.Connector {
	tb.Helper()
	name, source, err := dbtest.DriverDSN(dsn)
	if err != nil {
		tb.Fatal(err)
	}
	var c driver.Connector
	switch name {
	case "mysql":
		config, err := mysqldriver.ParseDSN(source)
		if err != nil {
			tb.Fatal(err)
		}
		config.InterpolateParams, config.DialFunc = true, w.dial
		if c, err = mysqldriver.NewConnector(config); err != nil {
			tb.Fatal(err)
		}
	case "pgx":
		config, err := pgx.ParseConfig(source)
		if err != nil {
			tb.Fatal(err)
		}
		config.DialFunc = w.dial
		// The driver itself pings a connection that was idle for a second.
		c = stdlib.GetConnector(*config, stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false }))
	default:
		db, err := sql.Open(name, source)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = db.Close() })
		c = plainConnector{db.Driver(), source}
	}
	return countedConnector{c, w}
}

type plainConnector struct {
	d      driver.Driver
	source string
}

func (c plainConnector) Connect(context.Context) (driver.Conn, error) { return c.d.Open(c.source) }
func (c plainConnector) Driver() driver.Driver                        { return c.d }

type countedConnector struct {
	driver.Connector
	w *wire
}

func (c countedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, c.w}, nil
}

// countedConn forwards the methods that the three drivers share.
type countedConn struct {
	driver.Conn
	w *wire
}

func (c countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if !errors.Is(err, driver.ErrSkip) { // ErrSkip means that the driver did nothing; database/sql then prepares the statement
		c.w.saw(query, values(args))
	}
	return r, err
}

func (c countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if !errors.Is(err, driver.ErrSkip) {
		c.w.saw(query, values(args))
	}
	return r, err
}

func (c countedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.w.saw("PREPARE "+query, nil)
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c countedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

func values(args []driver.NamedValue) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = a.Value
	}
	return out
}

// pgx returns a native handle of one connection that w records.
func (w *wire) pgx() conformance.Handle[pgx.Tx] {
	h := conformance.Pgx()
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Options) conformance.Pool[pgx.Tx] {
		tb.Helper()
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			tb.Fatal(err)
		}
		config.MaxConns = 1
		config.ConnConfig.DialFunc = w.dial
		config.ConnConfig.Tracer = w
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		pool, err := pgxpool.NewWithConfig(tb.Context(), config)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(pool.Close)
		db, err := holdfastpgx.Open(tb.Context(), pool, conformance.Single(opts))
		if err != nil {
			tb.Fatal(err)
		}
		return conformance.Pool[pgx.Tx]{
			DB:    db,
			Begin: func(ctx context.Context, _ sql.IsolationLevel) (pgx.Tx, error) { return pool.Begin(ctx) },
			End: func(ctx context.Context, tx pgx.Tx, commit bool) error {
				if commit {
					return tx.Commit(ctx)
				}
				return tx.Rollback(ctx)
			},
			InUse: func() int { return int(pool.Stat().AcquiredConns()) },
			Close: pool.Close,
		}
	}
	return h
}

// TraceQueryStart implements pgx.QueryTracer.
func (w *wire) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	w.saw(data.SQL, data.Args)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (w *wire) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

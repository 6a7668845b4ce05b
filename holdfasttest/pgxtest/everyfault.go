package pgxtest

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/http"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/everyfault"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
	"github.com/holdfast-go/holdfast/internal/pgxadapter"
)

// Handler is [holdfasttest.Handler] for a program on a native pool: see there.
type Handler struct {
	Setup           func(ctx context.Context, kit *Kit) error
	Call            func(ctx context.Context, kit *Kit, key string) error
	Invariant       func(ctx context.Context, kit *Kit) error
	OtherKeyRefused bool
}

// EveryFault is [holdfasttest.EveryFault] in a separate schema in the database of dsn, as [New] has it. The
// schema is emptied before each fault, but for Holdfast's tables, and dropped when the test ends. A point is
// a round trip: BEGIN and the statement that travels with it are one, and so are a statement and its COMMIT.
func EveryFault(tb holdfasttest.TB, dsn string, h Handler, opts ...holdfast.Options) (points int) {
	tb.Helper()
	e := newEngine[*Kit](tb, dsn)
	e.open = func(native *pgxpool.Pool, pool *sql.DB, via transport) *Kit {
		k := &Kit{&holdfasttest.Kit[pgx.Tx]{}, native}
		kit.Open(k.Kit, tb, pool, pgxadapter.Of(native), opts)
		prepare(e, k.Kit, via)
		return k
	}
	e.passes = func(k *Kit) error { return kit.TimePasses(k.DB, e.admin) }
	return everyfault.Run(tb, e, everyfault.Handler[*Kit](h))
}

// EveryFaultSQL is EveryFault for a program on database/sql, whose transactions are *sql.Tx.
func EveryFaultSQL(tb holdfasttest.TB, dsn string, h holdfasttest.Handler, opts ...holdfast.Options) (points int) {
	tb.Helper()
	e := newEngine[*holdfasttest.Kit[*sql.Tx]](tb, dsn)
	e.open = func(_ *pgxpool.Pool, pool *sql.DB, via transport) *holdfasttest.Kit[*sql.Tx] {
		k := holdfasttest.OnSQL(tb, pool, opts...)
		prepare(e, k, via)
		return k
	}
	e.passes = func(k *holdfasttest.Kit[*sql.Tx]) error { return kit.TimePasses(k.DB, e.admin) }
	return everyfault.Run(tb, e, everyfault.Handler[*holdfasttest.Kit[*sql.Tx]](h))
}

type transport func(http.RoundTripper) http.RoundTripper

// engine makes the schema of each run, which is the same one, empty again.
type engine[K any] struct {
	tb     holdfasttest.TB
	config *pgxpool.Config
	owner  string
	fresh  *kit.Fresh
	admin  *sql.DB
	open   func(native *pgxpool.Pool, pool *sql.DB, via transport) K
	passes func(clean K) error
	clean  K // of all runs, once it is opened
	opened bool
}

func newEngine[K any](tb holdfasttest.TB, dsn string) *engine[K] {
	tb.Helper()
	e := &engine[K]{tb: tb, config: config(tb, dsn), owner: "owner-" + kit.Random()}
	e.fresh, e.admin = kit.NewFresh(tb, server{e.config.ConnConfig}, func(name string) (*sql.DB, error) {
		own := e.config.ConnConfig.Copy()
		own.RuntimeParams["search_path"] = name
		own.RuntimeParams["lock_timeout"] = "1s" // a process may stand still
		own.DefaultQueryExecMode = pgx.QueryExecModeExec
		return stdlib.OpenDB(*own), nil
	})
	e.config.ConnConfig.RuntimeParams["search_path"] = e.fresh.Name
	return e
}

func prepare[K, Tx any](e *engine[K], k *holdfasttest.Kit[Tx], via transport) {
	k.Transport = via(k.Transport)
	if k.Owner != "" {
		k.Owner = e.owner
	}
}

func (e *engine[K]) must(err error) {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatalf("pgxtest: %v", err)
	}
}

// Begin implements everyfault.Engine.
func (e *engine[K]) Begin() everyfault.Database[K] {
	e.tb.Helper()
	e.must(e.fresh.Restore())
	if !e.opened {
		native, pool := e.pools(e.config)
		e.tb.Cleanup(native.Close)
		e.tb.Cleanup(func() { _ = pool.Close() })
		e.clean, e.opened = e.open(native, pool, func(t http.RoundTripper) http.RoundTripper { return t }), true
	}
	return database[K]{e}
}

func (e *engine[K]) pools(config *pgxpool.Config) (*pgxpool.Pool, *sql.DB) {
	e.tb.Helper()
	native, err := pgxpool.NewWithConfig(context.Background(), config)
	e.must(err)
	return native, stdlib.OpenDBFromPool(native)
}

// database is the schema of one run.
type database[K any] struct{ e *engine[K] }

// Clean implements everyfault.Database.
func (d database[K]) Clean() K { return d.e.clean }

// Start implements everyfault.Database.
func (d database[K]) Start(p *everyfault.Process, via func(http.RoundTripper) http.RoundTripper) (k K, closePool func()) {
	d.e.tb.Helper()
	config := d.e.config.Copy()
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return p.Connects() }
	config.ConnConfig.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, c net.Conn) (net.Conn, error) {
		w := &wire{Conn: c, p: p, end: d.e.kill, texts: texts{}}
		return w, p.Connected(w)
	}
	native, pool := d.e.pools(config)
	return d.e.open(native, pool, via), func() {
		_ = pool.Close()
		go native.Close() // it waits for what the program has not given back
	}
}

// kill ends a session, and waits until the server has done it.
func (e *engine[K]) kill(pid uint32) {
	ctx := context.Background()
	_, err := e.admin.ExecContext(ctx, `SELECT pg_terminate_backend($1)`, int32(pid)) //nolint:gosec // the server counts so
	for there := true; there && err == nil; {                                         // or the server is gone
		err = e.admin.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, int32(pid)).Scan(&there) //nolint:gosec // likewise
	}
}

// TimePasses implements everyfault.Database.
func (d database[K]) TimePasses() error { return d.e.passes(d.e.clean) }

// End implements everyfault.Database.
func (d database[K]) End() {}

var errRefused = errors.New("the server refuses a statement")

// Objects implements kit.Cleaner. What belongs to another object, such as the sequence of an identity column, is
// dropped with that.
func (server) Objects() string {
	const here = ` = current_schema()::text::regnamespace AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = o.tableoid AND d.objid = o.oid AND d.deptype IN ('i', 'e'))`
	return `SELECT format('%s IF EXISTS %I CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
			WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END, relname) FROM pg_class o WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND relnamespace` + here + `
		UNION ALL SELECT format('ROUTINE IF EXISTS %s CASCADE', oid::regprocedure) FROM pg_proc o WHERE pronamespace` + here + `
		UNION ALL SELECT format('TYPE IF EXISTS %I CASCADE', typname) FROM pg_type o WHERE typtype IN ('c', 'e', 'd', 'r') AND typnamespace` + here
}

// Mark implements kit.Cleaner.
func (server) Mark(n int) string { return "$" + strconv.Itoa(n) }

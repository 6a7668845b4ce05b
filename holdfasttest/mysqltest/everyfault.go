package mysqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/everyfault"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
)

// EveryFault is [holdfasttest.EveryFault] in a separate database on the server of dsn, as [New] has it. The
// database is emptied before each fault, but for Holdfast's tables, and dropped when the test ends. The
// program can use what MySQL or MariaDB has, but for the name of a lock of GET_LOCK that begins with holdfasttest.
func EveryFault(tb holdfasttest.TB, dsn string, h holdfasttest.Handler, opts ...holdfast.Options) (points int) {
	tb.Helper()
	e := &databases{tb: tb, config: parse(tb, dsn), opts: opts, owner: "owner-" + kit.Random()}
	e.fresh, e.admin = kit.NewFresh(tb, server{e.config}, e.openAdmin)
	return everyfault.Run(tb, e, everyfault.Handler[*holdfasttest.Kit[*sql.Tx]](h))
}

// databases makes that of each run, which is the same one, empty again.
type databases struct {
	tb     holdfasttest.TB
	config *mysql.Config
	opts   []holdfast.Options
	owner  string
	fresh  *kit.Fresh
	admin  *sql.DB
	clean  *holdfasttest.Kit[*sql.Tx] // of all runs
}

// openAdmin opens the pool of what is no program's.
func (e *databases) openAdmin(name string) (*sql.DB, error) {
	own := e.in(name)
	own.MultiStatements = true
	own.Params = map[string]string{"innodb_lock_wait_timeout": "1", "foreign_key_checks": "0"} // a process may stand still
	connector, err := mysql.NewConnector(own)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func (e *databases) in(name string) *mysql.Config {
	own := e.config.Clone()
	own.DBName = name
	own.Logger = &mysql.NopLogger{} // which would report each connection that is cut
	return own
}

func (e *databases) must(err error) {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatalf("mysqltest: %v", err)
	}
}

// Begin implements everyfault.Engine.
func (e *databases) Begin() everyfault.Database[*holdfasttest.Kit[*sql.Tx]] {
	e.tb.Helper()
	e.must(e.fresh.Restore())
	if e.clean == nil {
		connector, err := mysql.NewConnector(e.in(e.fresh.Name))
		e.must(err)
		pool := sql.OpenDB(connector)
		e.tb.Cleanup(func() { _ = pool.Close() })
		e.clean = e.kit(pool)
	}
	return database{e}
}

func (e *databases) kit(pool *sql.DB) *holdfasttest.Kit[*sql.Tx] {
	e.tb.Helper()
	k := holdfasttest.OnSQL(e.tb, pool, e.opts...)
	if k.Owner != "" {
		k.Owner = e.owner
	}
	return k
}

// database is that of one run.
type database struct{ e *databases }

// Clean implements everyfault.Database.
func (d database) Clean() *holdfasttest.Kit[*sql.Tx] { return d.e.clean }

// Start implements everyfault.Database.
func (d database) Start(p *everyfault.Process, via func(http.RoundTripper) http.RoundTripper) (k *holdfasttest.Kit[*sql.Tx], closePool func()) {
	d.e.tb.Helper()
	connector, err := mysql.NewConnector(d.e.in(d.e.fresh.Name))
	d.e.must(err)
	pool := sql.OpenDB(everyfault.Driver{
		Timeout:  &mysql.MySQLError{Number: 1205, SQLState: [5]byte([]byte("HY000")), Message: "holdfasttest: Lock wait timeout exceeded"},
		Deadlock: &mysql.MySQLError{Number: 1213, SQLState: [5]byte([]byte("40001")), Message: "holdfasttest: Deadlock found when trying to get lock"},
		Opened:   d.e.opened,
	}.Connector(connector, p))
	k = d.e.kit(pool)
	k.Transport = via(k.Transport)
	return k, func() { _ = pool.Close() }
}

// opened takes a lock that ends with the session, after the rollback of its transaction.
func (e *databases) opened(ctx context.Context, c driver.Conn) (kill func(), err error) {
	name := "holdfasttest_" + kit.Random()
	rows, err := c.(driver.QueryerContext).QueryContext(ctx, `SELECT CONNECTION_ID(), GET_LOCK('`+name+`', 0)`, nil) //nolint:forcetypeassert // go-sql-driver implements it
	if err != nil {
		return nil, err
	}
	got := make([]driver.Value, 2)
	if err := errors.Join(rows.Next(got), rows.Close()); err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(text(got[0]), 10, 64)
	return func() { e.kill(id, name) }, err //nolint:contextcheck // the context is of the connecting
}

func text(v driver.Value) string {
	if b, is := v.([]byte); is {
		return string(b)
	}
	return fmt.Sprint(v)
}

// kill ends a session, and waits until the server has done it.
func (e *databases) kill(id uint64, name string) {
	ctx := context.Background()
	c, err := e.admin.Conn(ctx)
	if err != nil {
		return // the server is gone
	}
	defer c.Close()
	_, _ = c.ExecContext(ctx, `KILL `+strconv.FormatUint(id, 10)) // or it has ended
	_, _ = c.ExecContext(ctx, `DO GET_LOCK('`+name+`', 10), RELEASE_LOCK('`+name+`')`)
}

// TimePasses implements everyfault.Database.
func (d database) TimePasses() error { return kit.TimePasses(d.e.clean.DB, d.e.admin) }

// End implements everyfault.Database.
func (d database) End() {}

// Objects implements kit.Cleaner.
func (server) Objects() string {
	return "SELECT CONCAT(CASE WHEN TABLE_TYPE IN ('VIEW', 'SEQUENCE') THEN TABLE_TYPE ELSE 'TABLE' END, ' `', REPLACE(TABLE_NAME, '`', '``'), '`') FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() " +
		"UNION ALL SELECT CONCAT(ROUTINE_TYPE, ' `', REPLACE(ROUTINE_NAME, '`', '``'), '`') FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()"
}

// Mark implements kit.Cleaner.
func (server) Mark(int) string { return "?" }

package faults_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// The ways in which a holder checks its lease before it writes. Each writes to a separate
// series.
const (
	guarded = "guarded" // Guard, in the transaction
	checked = "checked" // a check of the lease's context, before the transaction
	bare    = "bare"    // no check: it acquired the lock once
)

// party is the state of one process: a pool, a Locker, and a record of its operations.
type party struct {
	pool  *sql.DB
	db    *holdfast.DB[*sql.Tx]
	locks *sqllock.Locker[*sql.Tx]
	rec   *history.Recorder
	o     sqllock.Options
}

// sabotage breaks the locks of a party. It changes SQL that only this party uses.
type sabotage func(l *dialect.LeaseSQL)

func join(ctx context.Context, url, level string, o sqllock.Options, rec *history.Recorder, broken sabotage, opts ...holdfast.Options) (*party, error) {
	pool, err := openAt(url, level)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(12) // several parties share a server
	pool.SetMaxIdleConns(12) // opening connections would cost most of the time
	p := &party{pool: pool, rec: rec, o: o}
	if p.db, err = holdfastsql.Open(ctx, pool, conformance.Single(opts)); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	if broken != nil {
		broken(&access.Of(p.db).Dialect.Leases)
	}
	if p.locks, err = sqllock.New(ctx, p.db, o); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return p, nil
}

// leave ends a party. It releases the leases that the party holds at that time.
func (p *party) leave() error {
	err := p.locks.Close(context.Background())
	return errors.Join(err, p.pool.Close())
}

// joined calls join for a test. It fails the test on an error, and ends the party with the test.
func joined(t *testing.T, url, level string, o sqllock.Options, rec *history.Recorder, broken sabotage, opts ...holdfast.Options) *party {
	t.Helper()
	p, err := join(t.Context(), url, level, o, rec, broken, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.leave() })
	return p
}

// openAt opens a pool whose sessions begin at an isolation level.
func openAt(url, level string) (*sql.DB, error) {
	c, err := dsn.Parse(url)
	switch {
	case err != nil:
		return nil, err
	case level == "":
		return sql.Open(c.Driver, c.DSN)
	case c.Engine == dsn.Postgres:
		config, err := pgx.ParseConfig(c.DSN)
		if err != nil {
			return nil, err
		}
		config.RuntimeParams["default_transaction_isolation"] = level
		return stdlib.OpenDB(*config), nil
	}
	config, err := mysqldriver.ParseDSN(c.DSN)
	if err != nil {
		return nil, err
	}
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(atLevel{connector, level}), nil
}

// atLevel sets the level on each new connection: MySQL and MariaDB name the variable
// differently.
type atLevel struct {
	driver.Connector

	level string
}

func (c atLevel) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	_, err = conn.(driver.ExecerContext).ExecContext(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL "+c.level, nil)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// window returns the time until which a lease is certainly trusted after a call that began at
// sent, unless it is renewed. The request left later than sent, so the real time is not earlier.
func (p *party) window(sent time.Time, ttl time.Duration) time.Time {
	margin := min(p.o.Margin, ttl/2)
	if p.o.Margin == 0 {
		margin = ttl / 10
	}
	return sent.Add(ttl - margin)
}

// leaseTables creates the tables that holders write to: a counter for each key and series, and a
// row for each commit with its position and its token.
func leaseTables(e *conformance.Env[*sql.Tx]) {
	e.Helper()
	e.Must(`CREATE TABLE lease_counters (k ` + e.Bytes(64) + ` NOT NULL, series VARCHAR(16) NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (k, series))`)
	e.Must(`CREATE TABLE lease_commits (k ` + e.Bytes(64) + ` NOT NULL, series VARCHAR(16) NOT NULL, seq BIGINT NOT NULL, token BIGINT NOT NULL, PRIMARY KEY (k, series, seq))`)
}

// counters inserts the counters of keys.
func counters(e *conformance.Env[*sql.Tx], keys ...string) {
	e.Helper()
	for _, key := range keys {
		e.Must(`INSERT INTO lease_counters (k, series, n) VALUES ($1, 'guarded', 0), ($1, 'checked', 0), ($1, 'bare', 0)`, repeat(e, []byte(key), 3)...)
	}
}

// repeat repeats an argument as often as the engine's drivers need it.
func repeat(e *conformance.Env[*sql.Tx], arg any, n int) []any {
	if e.Engine == dbtest.Postgres {
		n = 1
	}
	args := make([]any, n)
	for i := range args {
		args[i] = arg
	}
	return args
}

// commits reads a series, for the judge.
func commits(e *conformance.Env[*sql.Tx], series string) []history.Commit {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, e.Rebind(`SELECT k, seq, token FROM lease_commits WHERE series = $1`), series)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []history.Commit
	for rows.Next() {
		var key []byte
		var c history.Commit
		if err := rows.Scan(&key, &c.Seq, &c.Token); err != nil {
			e.Fatal(err)
		}
		c.Key = string(key)
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		e.Fatal(err)
	}
	return all
}

// write makes one commit of a series under a term: it increments the position in a row that
// stays locked until the commit.
func (p *party) write(ctx context.Context, lease *sqllock.Lease, series string, seen *history.Term) error {
	var sent *history.Action
	err := p.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if sent != nil {
			sent.Failed() // otherwise it would not run again
			sent = nil
		}
		if err := p.put(ctx, tx, lease.Term(), series); err != nil {
			return err
		}
		if series == guarded && seen != nil {
			sent = seen.Commit()
		}
		return nil
	}, holdfast.TxOptions{LockTimeout: 5 * time.Second})
	switch {
	case sent == nil:
	case err == nil:
		sent.OK()
	case errors.Is(err, holdfast.ErrUnknown):
		sent.Unknown()
	default:
		sent.Failed()
	}
	return err
}

// put is the transaction of write.
func (p *party) put(ctx context.Context, tx *sql.Tx, term sqllock.Term, series string) error {
	if series == guarded {
		if err := p.locks.Guard(ctx, tx, term); err != nil {
			return err
		}
	}
	key := []byte(term.Key())
	if n, err := p.exec(ctx, tx, `UPDATE lease_counters SET n = n + 1 WHERE k = $1 AND series = $2`, key, series); err != nil || n != 1 {
		return errors.Join(err, fmt.Errorf("%d counters of %s", n, key))
	}
	_, err := p.exec(ctx, tx, `INSERT INTO lease_commits (k, series, seq, token) SELECT k, series, n, $3 FROM lease_counters WHERE k = $1 AND series = $2`, key, series, term.Token())
	return err
}

func (p *party) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (int64, error) {
	q, err := access.Of(p.db).Join(tx)
	if err != nil {
		return 0, err
	}
	r, err := core.Compile("", query, p.db.Engine() != holdfast.PostgreSQL).Exec(ctx, q, args...)
	return r.Affected, err
}

// Package conformance has what the suites share that every engine and every kind of handle must
// pass: environments, handles, modes, and helpers that more than one suite uses. The suites are
// in a package per domain below it, and the tests of the public packages run them. Suites read
// the declared capabilities of an engine where its behaviour differs; they skip nothing.
//
// A case is a function, here without its type parameter, and an entry in the map of its suite:
//
//	replayHasNoEffect := func(e *conformance.Env[*sql.Tx]) {
//		s := e.Store(idempotency.Options{})
//		for range 2 {
//			_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, tx *sql.Tx) (string, error) {
//				return "done", e.Effect(ctx, tx, "a")
//			})
//			if err != nil {
//				e.Fatal(err)
//			}
//		}
//		e.WantOnce("a")
//	}
package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// ShortTTL is the TTL of leases that tests let expire: long enough for the answer to the acquire
// on a busy machine.
const ShortTTL = 6 * 50 * time.Millisecond

// Timeout bounds each test; it starts when the test's turn comes. Only a test that hangs reaches
// it.
const Timeout = 10 * time.Minute

// Handle is a kind of handle under test.
type Handle[Tx any] struct {
	Name string
	// Runs reports whether the engine has such a handle.
	Runs func(e dbtest.Engine) bool
	// Open opens Holdfast on a new pool, closed when the test ends.
	Open func(tb testing.TB, dsn string, opts ...holdfast.Options) Pool[Tx]
}

// Pool is an open handle.
type Pool[Tx any] struct {
	DB *holdfast.DB[Tx]
	// Begin begins a transaction for the caller.
	Begin func(ctx context.Context, level sql.IsolationLevel) (Tx, error)
	// End commits or rolls back such a transaction.
	End func(ctx context.Context, tx Tx, commit bool) error
	// InUse counts the connections in use.
	InUse func() int
	// Close closes the pool early.
	Close func()
}

// Env is one test on one engine through one handle.
type Env[Tx any] struct {
	*testing.T
	Engine dbtest.Engine
	DSN    string
	Handle Handle[Tx]
	Pool[Tx]
	// SQL is a separate pool, for the audit and for other sessions.
	SQL *sql.DB
	Ctx context.Context

	// accounts are those of roles; entered: the environment's own pools are of one of them, and admin is
	// the DSN that it had. reaper is the URL of a reaper's account, and reapers a pool of it.
	accounts []string
	entered  bool
	// rowSecurity: they are under row level security.
	rowSecurity bool
	admin       string
	reaper      string
	reapers     *holdfast.DB[Tx]
}

// Run runs f on every engine that the handle supports. Each engine gets a separate, migrated
// database that also has the tables effects and refunds.
func Run[Tx any](t *testing.T, h Handle[Tx], f func(e *Env[Tx]), opts ...holdfast.Options) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if !h.Runs(engine) {
			return // the engine has no such handle
		}
		f(New(t, h, engine, opts...))
	})
}

// New makes the environment of one test.
func New[Tx any](t *testing.T, h Handle[Tx], engine dbtest.Engine, opts ...holdfast.Options) *Env[Tx] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Timeout)
	t.Cleanup(cancel)
	e := &Env[Tx]{T: t, Engine: engine, Handle: h, Ctx: ctx}
	e.DSN, e.SQL = dbtest.Prepared(t, engine, "migrated", func(db *sql.DB) {
		e.SQL = db
		e.Migrate()
		for _, q := range e.tables() {
			e.Must(q)
		}
	})
	e.enterRole()
	e.Pool = e.Handle.Open(t, e.DSN, opts...)
	if engine == dbtest.TiDB {
		begin := e.Begin
		e.Begin = func(ctx context.Context, level sql.IsolationLevel) (Tx, error) {
			if level == sql.LevelDefault { // as docs/reference/environments.md asks TiDB's users to
				level = sql.LevelReadCommitted
			}
			return begin(ctx, level)
		}
	}
	return e
}

// ManyOwners makes each call on the environment's handle name its owner, from now on.
func (e *Env[Tx]) ManyOwners() { e.DB = access.WithOwners(e.DB, core.ManyOwners) }

// AnyOwner lets each call on the environment's handle name an owner, or none, from now on: for tests that tell
// the one from the other.
func (e *Env[Tx]) AnyOwner() { e.DB = access.WithOwners(e.DB, core.AnyOwner) }

// Migrate applies Holdfast's tables.
func (e *Env[Tx]) Migrate(opts ...holdfast.Options) {
	e.Helper()
	if err := migrations.Up(e.Ctx, e.SQL, opts...); err != nil {
		e.Fatal(err)
	}
}

// Each calls row with each row of a query of the audit's.
func (e *Env[Tx]) Each(query string, row func(rows *sql.Rows)) {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, query)
	e.Check(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		row(rows)
	}
	e.Check(rows.Err())
}

// Bytes is the engine's column type for up to n bytes.
func (e *Env[Tx]) Bytes(n int) string {
	switch e.Engine {
	case dbtest.Postgres:
		return "bytea"
	case dbtest.SQLite:
		return "BLOB"
	}
	return "VARBINARY(" + strconv.Itoa(n) + ")"
}

// Text is the engine's column type for byte-exact text.
func (e *Env[Tx]) Text() string {
	switch e.Engine {
	case dbtest.Postgres, dbtest.SQLite:
		return "TEXT"
	}
	return "VARBINARY(255)"
}

func (e *Env[Tx]) tables() []string {
	return []string{
		`CREATE TABLE effects (k ` + e.Bytes(1100) + ` NOT NULL, who VARCHAR(64) NOT NULL)`,
		`CREATE TABLE refunds (refund_no ` + e.Text() + ` NOT NULL UNIQUE, bank_ref VARCHAR(64) UNIQUE, amount BIGINT NOT NULL)`,
	}
}

// Rebind replaces $1 by the placeholder of the engine's drivers.
func (e *Env[Tx]) Rebind(query string) string {
	return core.Compile("", query, e.Engine != dbtest.Postgres).Text
}

// Must runs a statement on the audit pool.
func (e *Env[Tx]) Must(query string, args ...any) {
	e.Helper()
	if _, err := e.SQL.ExecContext(e.Ctx, e.Rebind(query), args...); err != nil {
		e.Fatalf("%s: %v", query, err)
	}
	if e.accounts != nil && strings.HasPrefix(query, "CREATE TABLE") {
		e.grantOwn()
	}
}

// Int reads one number on the audit pool.
func (e *Env[Tx]) Int(query string, args ...any) int {
	e.Helper()
	var n int
	if err := e.SQL.QueryRowContext(e.Ctx, e.Rebind(query), args...).Scan(&n); err != nil {
		e.Fatalf("%s: %v", query, err)
	}
	return n
}

// Effects counts the effects of a key in the table effects.
func (e *Env[Tx]) Effects(key string) int {
	e.Helper()
	return e.Int(`SELECT COUNT(*) FROM effects WHERE k = $1`, []byte(key))
}

// Exec runs a statement in a handle's transaction.
func (e *Env[Tx]) Exec(ctx context.Context, tx Tx, query string, args ...any) (int64, error) {
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		return 0, err
	}
	r, err := q.Exec(ctx, e.Rebind(query), args...)
	return r.Affected, err
}

// Effect is the business write: one row for key.
func (e *Env[Tx]) Effect(ctx context.Context, tx Tx, key string) error {
	_, err := e.Exec(ctx, tx, `INSERT INTO effects (k, who) VALUES ($1, $2)`, []byte(key), "holder")
	return err
}

// WantOnce fails unless key had exactly one effect.
func (e *Env[Tx]) WantOnce(key string) {
	e.Helper()
	if n := e.Effects(key); n != 1 {
		e.Errorf("key %.40q had %d effects in the table, want 1", key, n)
	}
}

// InnoDB reports whether the engine is MySQL or MariaDB, or answers as they do.
func (e *Env[Tx]) InnoDB() bool { return e.Engine.Like() == dbtest.MySQL }

// StaleWrites reports whether a transaction at REPEATABLE READ may write to a row that has changed
// since its snapshot: on InnoDB, and on MariaDB without innodb_snapshot_isolation, its default from
// 11.6. Other engines ask for a new transaction.
func (e *Env[Tx]) StaleWrites() bool {
	e.Helper()
	if e.Engine != dbtest.MariaDB {
		return e.InnoDB()
	}
	var name, value string
	err := e.SQL.QueryRowContext(e.Ctx, `SHOW VARIABLES LIKE 'innodb_snapshot_isolation'`).Scan(&name, &value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		e.Fatal(err)
	}
	return value != "ON"
}

// Levels are the isolation levels of transactions, READ COMMITTED and above, that the engine has.
// On SQLite it is the default, which its driver calls by no other name.
func (e *Env[Tx]) Levels() []sql.IsolationLevel {
	switch e.Engine {
	case dbtest.SQLite:
		return []sql.IsolationLevel{sql.LevelDefault}
	case dbtest.TiDB:
		return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
	}
	return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// Eventually waits until ok returns true, and fails the test after dbtest.Hang.
func (e *Env[Tx]) Eventually(what string, ok func() bool) {
	e.Helper()
	dbtest.Eventually(e, what, ok)
}

// Keys lists keys that an engine with folding, padding or truncation treats as equal.
func Keys() []string {
	long := strings.Repeat("k", 999)
	return []string{
		"key", "KEY", "Key", "key ", "key  ", " key", "key\x00", "key\x00a", "k\u00e9y", "ke\u0301y", "k\u200bey", "k ey", "k\u00a0ey",
		"straße", "strasse", "😀", "😁", "\xff\xfe", "\xff", "0", "00", "0.0", "0e1", "'; DROP TABLE effects; --",
		long + "a" + strings.Repeat("z", 24), long + "b" + strings.Repeat("z", 24), long + "a" + strings.Repeat("z", 23),
	}
}

// Check fails the test at once if err is not nil.
func (e *Env[Tx]) Check(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// Numbered returns what and n, with a space between them.
func Numbered(what string, n int) string { return fmt.Sprintf("%s %d", what, n) }

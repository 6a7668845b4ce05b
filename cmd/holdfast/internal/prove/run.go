package prove

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	// cleanup bounds the work after the checks.
	cleanup = 30 * time.Second
	// racers is how many sessions race.
	racers = 8
	// shortTTL is the TTL of leases that a check lets expire.
	shortTTL = 500 * time.Millisecond
	// longTTL is longer than a run.
	longTTL = time.Hour
)

// run is one run on one database.
type run struct {
	o      Options
	start  time.Time
	prefix string
	report Report

	pool    *sql.DB
	db      *holdfast.DB[*sql.Tx]
	dialect *dialect.Dialect
	names   *strings.Replacer
	began   reading
	made    bool // tables may exist

	ids     atomic.Int64
	clients []*client
	closers []func(ctx context.Context)
}

func newRun(o Options) *run {
	r := &run{o: o, start: time.Now(), prefix: o.Open.Prefix + "prove_" + strings.ToLower(rand.Text()[:6]) + "_"}
	r.report = Report{At: r.start, Holdfast: buildVersion(), Facts: map[string]string{}}
	return r
}

// open opens the database and creates the tables.
func (r *run) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.o.Duration, errors.New("the tables were not made in time"))
	defer cancel()
	var err error
	if r.pool, err = r.newPool(nil); err != nil {
		return err
	}
	if r.db, err = r.openDB(ctx, r.pool); err != nil {
		return err
	}
	r.bind()
	r.report.Engine, r.report.Product, r.report.Version = string(r.db.Engine()), r.db.Product(), r.db.Version()
	if r.began, err = r.readClock(ctx, r.pool); err != nil {
		return err
	}
	if err := r.create(ctx); err != nil {
		return fmt.Errorf("make the tables of this run: %w", err)
	}
	if r.o.ready != nil {
		return r.o.ready(ctx, r.prefix)
	}
	return nil
}

// bind stores the dialect of the DB.
func (r *run) bind() {
	a := access.Of(r.db)
	r.dialect = a.Dialect
	r.names = strings.NewReplacer("{rows}", a.Table("rows"), "{effects}", a.Table("effects"), "{locks}", a.Table("locks"), "{now}", a.Dialect.Now)
}

func (r *run) create(ctx context.Context) error {
	r.made = true
	if err := migrations.Up(ctx, r.pool, r.options()); err != nil {
		return err
	}
	if err := r.createOwn(ctx, r.pool); err != nil {
		return err
	}
	_, err := r.newRow(ctx)
	switch r.dialect.Classify(err) {
	case dialect.Unplaced, dialect.NoTable:
		return fmt.Errorf("the tables of this run cannot be used; on Vitess name an unsharded keyspace, as the VSchema of a sharded one does not know them: %w", err)
	}
	return err
}

// createOwn creates the tables that stand for a program's own.
func (r *run) createOwn(ctx context.Context, q runner) error {
	return errors.Join(
		r.exec(ctx, q, `CREATE TABLE {rows} (k BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL, version BIGINT NOT NULL)`+r.dialect.Prove.Table),
		r.exec(ctx, q, `CREATE TABLE {effects} (id BIGINT NOT NULL PRIMARY KEY, k BIGINT NOT NULL)`+r.dialect.Prove.Table))
}

// options returns the options of a DB on the tables of this run.
func (r *run) options(observers ...holdfast.Observer) holdfast.Options {
	o := r.o.Open
	o.Prefix = r.prefix
	o.Observers = slices.Concat(o.Observers, observers)
	return o
}

// close closes everything that the checks left open.
func (r *run) close(ctx context.Context) {
	ctx, cancel := core.CleanupWithin(ctx, cleanup)
	defer cancel()
	for _, end := range slices.Backward(r.closers) {
		end(ctx)
	}
	r.closers, r.clients = nil, nil
}

// drop drops the tables, through a pool that no check has used.
func (r *run) drop(ctx context.Context) error {
	if !r.made {
		return nil
	}
	ctx, cancel := core.CleanupWithin(ctx, cleanup)
	defer cancel()
	pool, err := r.o.Pool(nil)
	if err == nil {
		defer func() { _ = pool.Close() }()
		for _, text := range []string{`DROP TABLE IF EXISTS {effects}`, `DROP TABLE IF EXISTS {rows}`} {
			if e := r.exec(ctx, pool, text); r.dialect.Classify(e) != dialect.NoTable { // the schema may not exist
				err = errors.Join(err, e)
			}
		}
		err = errors.Join(err, migrations.Down(ctx, pool, r.options()))
	}
	if err != nil {
		return fmt.Errorf("tables were left behind: drop those whose names begin with %s: %w", r.prefix, err)
	}
	return nil
}

// newPool opens a pool that is closed with the run.
func (r *run) newPool(dial Dial) (*sql.DB, error) {
	pool, err := r.o.Pool(dial)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func(context.Context) { _ = pool.Close() })
	return pool, nil
}

func (r *run) openDB(ctx context.Context, pool *sql.DB, observers ...holdfast.Observer) (*holdfast.DB[*sql.Tx], error) {
	db, err := holdfastsql.Open(ctx, pool, r.options(observers...))
	if err != nil {
		return nil, err
	}
	return access.WithOwners(db, core.OneOwner), nil // also with Options.OwnerSetting
}

// client stands for one process.
type client struct {
	pool  *sql.DB
	db    *holdfast.DB[*sql.Tx]
	store *idempotency.Store[*sql.Tx]
	locks *sqllock.Locker[*sql.Tx]
	close func(ctx context.Context)
}

func (r *run) newClient(ctx context.Context, dial Dial, o idempotency.Options, observers ...holdfast.Observer) (*client, error) {
	pool, err := r.o.Pool(dial)
	if err != nil {
		return nil, err
	}
	if dial != nil {
		pool.SetMaxOpenConns(1) // the one connection that a fault cuts
	}
	c := &client{pool: pool}
	c.close = func(ctx context.Context) {
		if c.locks != nil {
			_ = c.locks.Close(ctx) // the tables are dropped anyway
		}
		_ = pool.Close()
	}
	r.closers = append(r.closers, c.close)
	if c.db, err = r.openDB(ctx, pool, observers...); err != nil {
		return nil, err
	}
	o.Namespace = "prove"
	if c.store, err = idempotency.New(ctx, c.db, o); err != nil {
		return nil, err
	}
	if c.locks, err = sqllock.New(ctx, c.db, sqllock.Options{Holder: "holdfast prove"}); err != nil {
		return nil, err
	}
	return c, nil
}

// racing returns the clients that race. Checks share them.
func (r *run) racing(ctx context.Context) ([]*client, error) {
	for len(r.clients) < racers {
		c, err := r.newClient(ctx, nil, idempotency.Options{})
		if err != nil {
			return nil, err
		}
		r.clients = append(r.clients, c)
	}
	return r.clients, nil
}

// race runs f for 0 to n-1 at the same moment.
func race(n int, f func(i int) error) error {
	begin, errs := make(chan struct{}), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-begin
			errs[i] = f(i)
		})
	}
	close(begin)
	all.Wait()
	return errors.Join(errs...)
}

// runner is a pool, a connection or a transaction.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (r *run) stmt(text string) core.Stmt { return r.dialect.Compile("prove", r.names.Replace(text)) }

func (r *run) exec(ctx context.Context, q runner, text string, args ...any) error {
	_, err := r.stmt(text).Exec(ctx, stdhandle.Querier{R: q}, args...)
	return err
}

// number reads one number. It returns -1 if there is no row.
func (r *run) number(ctx context.Context, q runner, text string, args ...any) (n int64, err error) {
	found, err := r.stmt(text).QueryRow(ctx, stdhandle.Querier{R: q}, []any{&n}, args...)
	if err == nil && !found {
		n = -1
	}
	return n, err
}

// newRow inserts a new row for a check.
func (r *run) newRow(ctx context.Context) (k int64, err error) {
	k = r.ids.Add(1)
	return k, r.exec(ctx, r.pool, `INSERT INTO {rows} (k, n, version) VALUES ($1, 0, 1)`, k)
}

func (r *run) effect(ctx context.Context, q runner, k int64) error {
	return r.exec(ctx, q, `INSERT INTO {effects} (id, k) VALUES ($1, $2)`, r.ids.Add(1), k)
}

func (r *run) effects(ctx context.Context, k int64) (int64, error) {
	return r.number(ctx, r.pool, `SELECT COUNT(*) FROM {effects} WHERE k = $1`, k)
}

func op(k int64) idempotency.Op {
	return idempotency.Op{Name: "prove", Key: strconv.FormatInt(k, 10), Request: k}
}

// do requests an operation that has one effect.
func (r *run) do(ctx context.Context, c *client, o idempotency.Op, k int64) (idempotency.Outcome, error) {
	res, err := idempotency.Do(ctx, c.store, o, func(ctx context.Context, tx *sql.Tx) (int64, error) {
		return k, r.effect(ctx, tx, k)
	})
	return res.Outcome, err
}

// pause waits between two polls.
func pause(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

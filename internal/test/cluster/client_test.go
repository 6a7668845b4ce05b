//go:build linux

package cluster_test

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/stdhandle"
)

// childConfig is the environment variable that turns this program into a client.
const childConfig = "HOLDFAST_CLUSTER_CHILD"

// client is the configuration of a client process.
type client struct {
	URLs     []string      // of the nodes, the preferred one first
	Native   bool          // pgx's own pool
	Healthy  string        // a query that returns a row on a node that can be used
	Patience time.Duration // of one call
	Start    time.Time     // from this time on, the client requests one refund every Period
	Period   time.Duration
	Workers  int
}

// answer is a client's report of a call.
type answer struct {
	At      time.Time
	No      int
	Outcome string // executed, replayed, unknown, or an error that asks for another call
	Error   string `json:",omitempty"`
}

const (
	executed = "executed"
	replayed = "replayed"
	unknown  = "unknown"
	failed   = "failed"
)

// child requests refunds until its input ends, and then continues until each has an answer.
func child(text string) {
	var c client
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	if err := c.run(); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func (c *client) run() error {
	ctx := context.Background()
	ask, end, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer end()
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex
	say := func(a answer) {
		mu.Lock()
		defer mu.Unlock()
		line, _ := json.Marshal(a)
		_, _ = out.Write(append(line, '\n'))
		_ = out.Flush()
	}
	var all sync.WaitGroup
	for range c.Workers {
		all.Go(func() {
			for no := c.next(-1, stop); no >= 0; no = c.next(no, stop) {
				c.insist(ctx, ask, no, say)
				if rand.IntN(4) == 0 { // a user presses the button again
					c.insist(ctx, ask, rand.IntN(no+1), say)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// next waits for the time of the next refund; all clients request it at once. It skips the
// refunds whose time passed while the last one had no answer.
func (c *client) next(last int, stop <-chan struct{}) int {
	no := max(last+1, int(time.Since(c.Start)/c.Period))
	select {
	case <-time.After(time.Until(c.Start.Add(time.Duration(no) * c.Period))):
		return no
	case <-stop:
		return -1
	}
}

// insist does what the docs require of callers: it repeats the call after every error without a
// definite outcome.
func (c *client) insist(ctx context.Context, ask func(context.Context, int) (bool, error), no int, say func(answer)) {
	for {
		one, cancel := context.WithTimeout(ctx, c.Patience)
		did, err := ask(one, no)
		cancel()
		a := answer{At: time.Now(), No: no}
		switch {
		case err == nil && did:
			a.Outcome = executed
		case err == nil:
			a.Outcome = replayed
		case errors.Is(err, holdfast.ErrUnknown):
			a.Outcome, a.Error = unknown, err.Error()
		default:
			a.Outcome, a.Error = failed, err.Error()
		}
		say(a)
		if err == nil {
			return
		}
		time.Sleep(20*time.Millisecond + rand.N(50*time.Millisecond))
	}
}

// open opens the client's pool and its ways to request refunds.
func (c *client) open(ctx context.Context) (ask func(context.Context, int) (bool, error), end func(), err error) {
	if c.Native {
		return c.openNative(ctx)
	}
	pool, err := c.openStd()
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(8)
	pool.SetConnMaxLifetime(5 * time.Second) // so that clients return to a node that comes back
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return nil, nil, err
	}
	compile := func(query string) core.Stmt { return core.Compile("", query, db.Engine() != holdfast.PostgreSQL) }
	a := &asker[*sql.Tx]{
		db: db,
		exec: func(ctx context.Context, tx *sql.Tx, query string, args ...any) (int64, error) {
			r, err := compile(query).Exec(ctx, stdhandle.Querier{R: tx}, args...)
			return r.Affected, err
		},
		count: func(ctx context.Context, tx *sql.Tx, query string, args ...any) (n int, err error) {
			_, err = compile(query).QueryRow(ctx, stdhandle.Querier{R: tx}, []any{&n}, args...)
			return n, err
		},
	}
	if err := a.prepare(ctx); err != nil {
		return nil, nil, err
	}
	return a.ask, func() { _ = a.locks.Close(ctx); _ = pool.Close() }, nil
}

func (c *client) openNative(ctx context.Context) (ask func(context.Context, int) (bool, error), end func(), err error) {
	config, err := pgxpool.ParseConfig(c.URLs[0])
	if err != nil {
		return nil, nil, err
	}
	holdfastpgx.WatchNotices(config.ConnConfig)
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	db, err := holdfastpgx.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return nil, nil, err
	}
	a := &asker[pgx.Tx]{
		db: db,
		exec: func(ctx context.Context, tx pgx.Tx, query string, args ...any) (int64, error) {
			tag, err := tx.Exec(ctx, query, args...)
			return tag.RowsAffected(), err
		},
		count: func(ctx context.Context, tx pgx.Tx, query string, args ...any) (n int, err error) {
			err = tx.QueryRow(ctx, query, args...).Scan(&n)
			return n, err
		},
	}
	if err := a.prepare(ctx); err != nil {
		return nil, nil, err
	}
	return a.ask, func() { _ = a.locks.Close(ctx); pool.Close() }, nil
}

// openStd opens a pool that connects to the first healthy node, anew for each connection.
func (c *client) openStd() (*sql.DB, error) {
	if strings.HasPrefix(c.URLs[0], "postgres") {
		pool, _, err := dsn.Open(c.URLs[0]) // one URL with all hosts
		return pool, err
	}
	n := nodes{healthy: c.Healthy}
	for _, url := range c.URLs {
		config, err := dsn.Parse(url)
		if err != nil {
			return nil, err
		}
		parsed, err := mysqldriver.ParseDSN(config.DSN)
		if err != nil {
			return nil, err
		}
		parsed.Timeout = 2 * time.Second
		connector, err := mysqldriver.NewConnector(parsed)
		if err != nil {
			return nil, err
		}
		n.all = append(n.all, connector)
	}
	return sql.OpenDB(n), nil
}

// nodes connects to the first healthy node: one that has lost its cluster still answers SELECT 1.
type nodes struct {
	all     []driver.Connector
	healthy string
}

// Connect implements driver.Connector.
func (n nodes) Connect(ctx context.Context) (conn driver.Conn, err error) {
	for _, node := range n.all {
		if conn, err = n.connect(ctx, node); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// connect gives a frozen node half a second.
func (n nodes) connect(ctx context.Context, node driver.Connector) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	conn, err := node.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := n.check(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (n nodes) check(ctx context.Context, conn driver.Conn) error {
	rows, err := conn.(driver.QueryerContext).QueryContext(ctx, n.healthy, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := rows.Next(make([]driver.Value, 1)); err != nil {
		return errors.New("the node is not healthy")
	}
	return nil
}

// Driver implements driver.Connector.
func (n nodes) Driver() driver.Driver { return n.all[0].Driver() }

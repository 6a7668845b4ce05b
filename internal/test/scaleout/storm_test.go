// Package scaleout tests what needs a sharded keyspace. Run it by `make scaleout`.
package scaleout_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

const (
	// shardedVariable lists the URLs of sharded keyspaces, separated by blanks. Their VSchema
	// has the tables of Holdfast, and refunds and orders by their column owner.
	shardedVariable = "HOLDFAST_TEST_VITESS_SHARDED"
	// countersVariable is the router's page of counters, for example
	// http://127.0.0.1:15001/debug/vars.
	countersVariable = "HOLDFAST_TEST_VITESS_COUNTERS"

	// killVariable is a command that kills the shards' server and starts it again, in the middle
	// of the storm.
	killVariable = "HOLDFAST_TEST_VITESS_KILL"

	owners   = 16 // so that each of four shards has some
	intents  = 12 // refunds of each owner
	clients  = 3  // who ask for each
	patience = 3 * time.Minute
)

type refund struct {
	Owner string `db:"owner"`
	No    string `db:"no"`
	Cents int64  `db:"cents"`
}

type order struct {
	Owner    string `db:"owner"`
	Refunded int64  `db:"refunded"`
	Version  int64  `db:"version"`
}

// client is one program's way to the database. Each of its strategies makes the refund of an owner
// once, however many ask for it.
type client struct {
	pool   *sql.DB
	db     *holdfast.DB[*sql.Tx]
	ops    *idempotency.Store[*sql.Tx]
	rows   *businessrow.Table[refund, *sql.Tx]
	orders *optimistic.Table[order, *sql.Tx]
	locks  *sqllock.Locker[*sql.Tx]
	keys   *rowlock.Locker[*sql.Tx]
}

func open(t *testing.T, url string) *client {
	t.Helper()
	c := &client{pool: dbtest.OpenSQL(t, url)}
	var err error
	must := func(e error) {
		t.Helper()
		if e != nil {
			t.Fatal(e)
		}
	}
	c.db, err = holdfastsql.Open(t.Context(), c.pool)
	must(err)
	c.ops, err = idempotency.New(t.Context(), c.db, idempotency.Options{Wait: patience})
	must(err)
	c.rows, err = businessrow.New[refund](t.Context(), c.db, holdfast.TableSpec{Table: "refunds", Key: []string{"owner", "no"}}, businessrow.Options{Wait: patience})
	must(err)
	c.orders, err = optimistic.New[order](t.Context(), c.db, holdfast.TableSpec{Table: "orders", Key: []string{"owner"}})
	must(err)
	c.locks, err = sqllock.New(t.Context(), c.db)
	must(err)
	c.keys, err = rowlock.New(t.Context(), c.db)
	must(err)
	t.Cleanup(func() { _ = c.locks.Close(context.WithoutCancel(t.Context())) })
	return c
}

// pay books the refund, unless it is booked: the caller has made sure that no other call does so now.
func pay(ctx context.Context, tx *sql.Tx, r refund) error {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds WHERE owner = ? AND no = ?`, r.Owner, r.No).Scan(&n)
	if err != nil || n > 0 {
		return err
	}
	return book(ctx, tx, r)
}

func book(ctx context.Context, tx *sql.Tx, r refund) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO refunds (owner, no, cents) VALUES (?, ?, ?)`, r.Owner, r.No, r.Cents); err != nil {
		return err
	}
	return move(ctx, tx, r)
}

func move(ctx context.Context, tx *sql.Tx, r refund) error {
	_, err := tx.ExecContext(ctx, `UPDATE orders SET refunded = refunded + ?, version = version + 1 WHERE owner = ?`, r.Cents, r.Owner)
	return err
}

// under books the refund in a transaction that a lease guards.
func (c *client) under(ctx context.Context, lease *sqllock.Lease, r refund) error {
	err := c.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := c.locks.For(r.Owner).Guard(ctx, tx, lease.Term()); err != nil {
			return err
		}
		return pay(ctx, tx, r)
	}, holdfast.TxOptions{Isolation: sql.LevelReadCommitted})
	return errors.Join(err, lease.Release(context.WithoutCancel(ctx)))
}

var strategies = map[string]func(ctx context.Context, c *client, r refund) error{
	"idempotency": func(ctx context.Context, c *client, r refund) error {
		_, err := idempotency.Do(ctx, c.ops, idempotency.Op{Owner: r.Owner, Name: "refund", Key: r.No, Request: r},
			func(ctx context.Context, tx *sql.Tx) (int64, error) { return r.Cents, book(ctx, tx, r) })
		return err
	},
	"business row": func(ctx context.Context, c *client, r refund) error {
		_, err := c.rows.Do(ctx, r, func(ctx context.Context, tx *sql.Tx) error { return move(ctx, tx, r) })
		return err
	},
	"lease and guard": func(ctx context.Context, c *client, r refund) error {
		lease, err := c.locks.For(r.Owner).Acquire(ctx, r.No)
		if err != nil {
			return err
		}
		return c.under(ctx, lease, r)
	},
	"fair lock": func(ctx context.Context, c *client, r refund) error {
		lease, err := fairlock.New(c.locks.For(r.Owner)).Acquire(ctx, r.No)
		if err != nil {
			return err
		}
		return c.under(ctx, lease, r)
	},
	"semaphore": func(ctx context.Context, c *client, r refund) error {
		s, err := fairlock.New(c.locks.For(r.Owner)).Semaphore("one at a time", 1)
		if err != nil {
			return err
		}
		lease, err := s.Acquire(ctx, 1)
		if err != nil {
			return err
		}
		return c.under(ctx, lease, r)
	},
	"row lock": func(ctx context.Context, c *client, r refund) error {
		return c.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := c.keys.For(r.Owner).LockTx(ctx, tx, r.No, holdfast.Forever); err != nil {
				return err
			}
			return pay(ctx, tx, r)
		}, holdfast.TxOptions{Isolation: sql.LevelReadCommitted})
	},
	"optimistic": func(ctx context.Context, c *client, r refund) error {
		return optimistic.Retry(ctx, c.db, func(ctx context.Context, tx *sql.Tx) error {
			o, err := c.orders.GetTx(ctx, tx, order{Owner: r.Owner})
			if err != nil {
				return err
			}
			var n int
			if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds WHERE owner = ? AND no = ?`, r.Owner, r.No).Scan(&n); err != nil || n > 0 {
				return err
			}
			o.Refunded += r.Cents
			if _, err := c.orders.UpdateTx(ctx, tx, o, "refunded"); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, `INSERT INTO refunds (owner, no, cents) VALUES (?, ?, ?)`, r.Owner, r.No, r.Cents)
			return err
		}, optimistic.RetryOptions{Attempts: 50})
	},
}

// again asks as long as the answer is that it may be asked for again, or, while servers are killed,
// any answer but yes.
func again(ctx context.Context, c *client, run func(context.Context, *client, refund) error, r refund) error {
	for {
		err := run(ctx, c, r)
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case os.Getenv(killVariable) != "":
			time.Sleep(10 * time.Millisecond) // there is no server
		case repeatable(err), c.db.Retryable(err):
		default:
			return err
		}
	}
}

func repeatable(err error) bool {
	for _, of := range []error{holdfast.ErrRetry, holdfast.ErrUnknown, idempotency.ErrInProgress, optimistic.ErrConflict, sqllock.ErrLost} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// sharded returns the URLs of shardedVariable.
func sharded(t *testing.T) []string {
	urls := strings.Fields(os.Getenv(shardedVariable))
	if len(urls) == 0 {
		t.Skipf("%s is not set: make scaleout sets it", shardedVariable)
	}
	return urls
}

// TestShards lets several clients ask for the same refunds, of owners on all shards, in the mode in
// which a transaction has one shard, and counts what was booked on each.
func TestShards(t *testing.T) {
	for _, url := range sharded(t) {
		t.Run(keyspaceOf(url), func(t *testing.T) { storm(t, url) })
	}
}

func keyspaceOf(url string) string {
	return url[strings.LastIndex(url, "/")+1 : strings.LastIndex(url, "?")]
}

// tables opens a pool of a keyspace with Holdfast's tables and the program's.
func tables(t *testing.T, url string) *sql.DB {
	t.Helper()
	pool := dbtest.OpenSQL(t, url)
	for range 2 { // a second time finds nothing to do
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []string{
		`CREATE TABLE IF NOT EXISTS refunds (owner VARBINARY(64) NOT NULL, no VARBINARY(64) NOT NULL, cents BIGINT NOT NULL, PRIMARY KEY (owner, no))`,
		orders,
	} {
		if _, err := pool.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}

func storm(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	pool := tables(t, url)
	var all []*client
	for range clients {
		all = append(all, open(t, url))
	}
	names := slices.Sorted(maps.Keys(strategies))
	run := time.Now().UnixNano()
	owner := func(i int) string { return fmt.Sprintf("owner %d of %d", i, run) }
	for i := range owners {
		if _, err := pool.ExecContext(ctx, `INSERT INTO orders (owner, refunded, version) VALUES (?, 0, 1)`, owner(i)); err != nil {
			t.Fatal(err)
		}
	}

	before := crossings(t)
	var asked atomic.Int64
	var wg sync.WaitGroup
	for i := range owners {
		for _, c := range all {
			wg.Go(func() {
				for n := range intents {
					name := names[n%len(names)]
					r := refund{Owner: owner(i), No: fmt.Sprintf("%s %d", name, n), Cents: int64(n + 1)}
					asked.Add(1)
					if err := again(ctx, c, strategies[name], r); err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
	}
	killed := kill(t, &asked)
	wg.Wait()
	crossed := crossings(t) - before

	want := int64(intents * (intents + 1) / 2)
	lost, duplicates := 0, 0
	perShard := map[string]int{}
	for i := range owners {
		var n int
		var sum, booked int64
		err := pool.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(cents), 0) FROM refunds WHERE owner = ?`, owner(i)).Scan(&n, &sum)
		if err == nil {
			err = pool.QueryRowContext(ctx, `SELECT refunded FROM orders WHERE owner = ?`, owner(i)).Scan(&booked)
		}
		if err != nil {
			t.Fatal(err)
		}
		lost += intents - n
		if booked > want {
			duplicates++
		}
		if sum != want || booked != want {
			t.Errorf("%s: %d refunds of %d cents, and %d in the order, want %d", owner(i), n, sum, booked, want)
		}
	}
	total := 0
	uses, err := shardsOf(ctx, pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range uses {
		var n int
		err := onShard(ctx, pool, use, func(conn *sql.Conn) error {
			return conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds WHERE owner LIKE ?`, fmt.Sprintf("%% of %d", run)).Scan(&n)
		})
		if err != nil {
			t.Fatal(err)
		}
		perShard[use] = n
		total += n
		if n == 0 {
			t.Errorf("shard %s has no refund: this shows nothing", use)
		}
	}
	if total != owners*intents {
		t.Errorf("the shards have %d refunds together, want %d", total, owners*intents)
	}
	if crossed != 0 && !killed { // the router counts once more what it sends again over a new connection
		t.Errorf("%d statements touched more than one shard", crossed)
	}
	t.Logf("shards=%d killed=%v owners=%d asked=%d refunds=%d per shard=%v duplicates=%d lost=%d crossed=%d", len(perShard), killed, owners, asked.Load(), total, perShard, duplicates, lost, crossed)
}

// kill kills the shards' server once a third was asked for, and starts it again.
func kill(t *testing.T, asked *atomic.Int64) bool {
	t.Helper()
	command := os.Getenv(killVariable)
	if command == "" {
		return false
	}
	for asked.Load() < owners*intents*clients/3 && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
	return true
}

// onShard runs f on a connection that leads to one shard.
func onShard(ctx context.Context, pool *sql.DB, use string, f func(conn *sql.Conn) error) error {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err = conn.ExecContext(ctx, "USE `"+use+"`"); err == nil {
		err = f(conn)
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that the pool does not reuse it
	_ = conn.Close()
	return err
}

// shardsOf lists the targets of a keyspace's shards.
func shardsOf(ctx context.Context, pool *sql.DB) (all []string, err error) {
	var keyspace string
	if err := pool.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&keyspace); err != nil {
		return nil, err
	}
	rows, err := pool.QueryContext(ctx, `SHOW VITESS_SHARDS`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if of, shard, _ := strings.Cut(name, "/"); of == keyspace {
			all = append(all, of+":"+shard)
		}
	}
	return all, rows.Err()
}

// crossings counts how often the router sent a statement, or a COMMIT, to one more shard. Insert is
// "MultiShard" by the router's plan, also of one row: the shards that it was sent to tell.
func crossings(t *testing.T) (n int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, os.Getenv(countersVariable), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var counters struct{ QueryExecutions, QueryRoutes map[string]int }
	if err := json.NewDecoder(response.Body).Decode(&counters); err != nil {
		t.Fatal(err)
	}
	for kind, times := range counters.QueryExecutions {
		if strings.Contains(kind, ".Scatter.") {
			n += times
		}
		n += max(0, counters.QueryRoutes[kind]-times)
	}
	return n
}

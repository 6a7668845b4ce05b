//go:build linux

package cluster_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// commits is a storm of plain transactions that write the same rows on all nodes. What a COMMIT answers
// must be what is in the tables at the end.
type commits struct {
	t    *testing.T
	end  context.CancelFunc
	all  sync.WaitGroup
	done atomic.Int64

	mu   sync.Mutex
	list []commit
}

// commit is a COMMIT that was sent.
type commit struct {
	id      string
	node    int
	err     error
	outcome holdfast.CommitOutcome
}

// startCommits starts four writers at each of the nodes.
func startCommits(t *testing.T, urls []string) *commits {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	c := &commits{t: t, end: end}
	t.Cleanup(c.stop)
	for i, url := range urls {
		pool := dbtest.OpenSQL(t, url)
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			c.all.Go(func() {
				for ctx.Err() == nil {
					c.write(pool, db, i)
				}
			})
		}
	}
	return c
}

// write runs one transaction, and records it if it got as far as COMMIT.
func (c *commits) write(pool *sql.DB, db *holdfast.DB[*sql.Tx], node int) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		time.Sleep(20 * time.Millisecond) // away
		return
	}
	one := commit{id: rand.Text(), node: node}
	_, err = tx.ExecContext(ctx, `INSERT INTO effects (id, refund_no, order_no, cents) VALUES (?, 1, 1, 1)`, one.id)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE orders SET refunded = refunded + 1 WHERE order_no = ?`, mathrand.IntN(10))
	}
	if err != nil {
		_ = tx.Rollback()
		return
	}
	one.err = tx.Commit()
	one.outcome = db.CommitOutcome(one.err)
	c.mu.Lock()
	c.list = append(c.list, one)
	c.mu.Unlock()
	if one.err == nil {
		c.done.Add(1)
	}
}

// flows waits until n more COMMITs succeeded.
func (c *commits) flows(n int64) {
	c.t.Helper()
	want := c.done.Load() + n
	dbtest.Eventually(c.t, "commits", func() bool { return c.done.Load() >= want })
}

func (c *commits) stop() {
	c.end()
	c.all.Wait()
}

// judge compares the answers with the tables of a node that has all of them: for each error, how often its
// transaction is there and how often it is not.
func (c *commits) judge(pool *sql.DB) {
	c.t.Helper()
	there := c.there(pool)
	count := map[string][2]int{} // not there, there
	for i, one := range c.list {
		name := "success"
		if one.err != nil {
			name = digits(one.err.Error())
			if code := dialect.MySQLNumber(one.err); code != 0 {
				name = strconv.Itoa(int(code))
			}
		}
		n := count[name]
		if there[one.id] {
			n[1]++
		} else {
			n[0]++
		}
		count[name] = n
		if one.outcome == holdfast.Done && !there[one.id] || one.outcome == holdfast.NotDone && there[one.id] {
			c.t.Errorf("COMMIT %d of %d, at node %d: %v means %v, and the transaction is there: %v", i+1, len(c.list), one.node, one.err, one.outcome, there[one.id])
		}
	}
	c.t.Logf("commits, those that are not there and those that are: %v", count)
	if n := count["success"]; n[1] == 0 || len(count) < 2 {
		c.t.Error("there was no conflict")
	}
}

// there returns the transactions that are in the tables.
func (c *commits) there(pool *sql.DB) map[string]bool {
	c.t.Helper()
	there := map[string]bool{}
	rows, err := pool.QueryContext(c.t.Context(), `SELECT id FROM own.effects`)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			c.t.Fatal(err)
		}
		there[id] = true
	}
	if err := rows.Err(); err != nil {
		c.t.Fatal(err)
	}
	return there
}

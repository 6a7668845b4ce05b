//go:build linux

package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ahead is the lead of the third node's clock over the others.
const ahead = 2 * time.Second

// TestGaleraNodes checks what is safe on several nodes at once and what is not, each next to a
// naive form that fails.
func TestGaleraNodes(t *testing.T) {
	c := startGalera(t, 3)
	third := c.nodes[2]
	third.kill()
	third.clock = "+" + ahead.String()
	third.start()
	business(t, dbtest.OpenSQL(t, c.nodes[0].url), "VARBINARY(64)")
	type test = func(t *testing.T, c *galera)
	for name, f := range map[string]test{
		"RowLocks": func(t *testing.T, c *galera) { rowLocksOnTwo(t, c.urls()) },
		"Guard":    galeraGuard, "Reads": galeraReads, "Settings": galeraSettings,
		"Deadlock": func(t *testing.T, c *galera) { conflictOnTwo(t, c.urls()) },
		"Audit":    func(t *testing.T, c *galera) { auditOnTwo(t, c.urls()) },
		"Clocks":   galeraClocks, "Doctor": galeraDoctor,
	} {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
	for name, f := range map[string]test{"Minority": galeraMinority} { // it ends the cluster
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

// galeraGuard lets the second node apply changes one after the other.
func galeraGuard(t *testing.T, c *galera) {
	c.nodes[1].exec(`SET GLOBAL wsrep_slave_threads = 1`)
	for range 4 {
		c.nodes[0].exec(`UPDATE own.orders SET refunded = refunded + 1 WHERE order_no = 5`) // a thread ends with its next task
	}
	guardOnTwo(t, c.urls())
}

// galeraReads uses one pool with connections to two nodes. The next statement on one node must
// see the write of the other one, or a held lock looks lost.
func galeraReads(t *testing.T, c *galera) {
	urls := c.urls()
	a, b := openOn(t, urls[0], sqllock.Options{}), openOn(t, urls[1], sqllock.Options{})
	const rounds = 300
	naive, lost := 0, 0
	for range rounds {
		a.must(a.pool, `INSERT INTO refunds (refund_no, order_no) VALUES (920000, 1)`)
		r, err := b.pool.ExecContext(t.Context(), `DELETE FROM refunds WHERE refund_no = 920000`)
		if err != nil && !b.db.Retryable(err) {
			t.Fatal(err)
		}
		if err == nil {
			if n, _ := r.RowsAffected(); n == 0 {
				naive++
			}
		}
		a.must(a.pool, `SET STATEMENT wsrep_sync_wait = 7 FOR DELETE FROM refunds WHERE refund_no = 920000`)
	}
	if naive == 0 {
		t.Error("the naive form, a write without a wait, always found what the other node had written")
	}
	for range rounds {
		lease, err := a.locks.Acquire(t.Context(), "read")
		if err != nil {
			t.Fatal(err)
		}
		// The other node knows the term, and that no other call can acquire the lock.
		tx := b.begin()
		if err := b.locks.Guard(t.Context(), tx, b.locks.Term("read", lease.Token())); err != nil {
			lost++
		}
		_ = tx.Rollback()
		if _, err := b.locks.TryAcquire(t.Context(), "read"); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("on another node: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, err := b.locks.TryAcquire(t.Context(), "read")
		if err != nil {
			t.Fatalf("free, and not to be had on another node: %v", err)
		}
		_ = next.Release(t.Context())
	}
	t.Logf("of %d: %d writes did not find the row, %d guards in a transaction of the caller's own did not find the term", rounds, naive, lost)
}

// galeraSettings checks that no connection setting stays changed.
func galeraSettings(t *testing.T, c *galera) {
	o := openOn(t, c.nodes[0].url, sqllock.Options{})
	o.pool.SetMaxOpenConns(1)
	before := o.number(`SELECT @@SESSION.wsrep_sync_wait * 1000 + @@SESSION.innodb_lock_wait_timeout`)
	lease, err := o.locks.Acquire(t.Context(), "settings")
	if err == nil {
		err = lease.Release(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	store, err := idempotency.New(t.Context(), o.db)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := idempotency.Do(t.Context(), store, idempotency.Op{Name: "settings", Key: "k", Request: 1}, func(ctx context.Context, tx *sql.Tx) (string, error) {
			var wait int
			err := tx.QueryRowContext(ctx, `SELECT @@SESSION.wsrep_sync_wait`).Scan(&wait)
			if wait != 7 {
				t.Errorf("in a transaction of Holdfast's wsrep_sync_wait is %d", wait)
			}
			return "done", err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if after := o.number(`SELECT @@SESSION.wsrep_sync_wait * 1000 + @@SESSION.innodb_lock_wait_timeout`); after != before {
		t.Errorf("the settings were %d and are %d", before, after)
	}
	if _, err := holdfastsql.Open(t.Context(), dbtest.OpenSQL(t, c.nodes[0].url+"?wsrep_on=OFF"), holdfast.Options{SingleOwner: true}); !errors.Is(err, holdfast.ErrUnsupported) {
		t.Errorf("a session that does not replicate is opened: %v", err)
	}
}

// galeraClocks checks that a node whose clock is ahead grants a lease to another holder earlier.
// With a margin larger than that lead, the holder's context ends in time; the guard refuses the
// former holder under any clock.
func galeraClocks(t *testing.T, c *galera) {
	const ttl = 6 * time.Second
	for _, margin := range []time.Duration{0, ttl / 2} {
		a, b := openOn(t, c.nodes[0].url, sqllock.Options{TTL: ttl, Margin: margin}), openOn(t, c.nodes[2].url, sqllock.Options{TTL: ttl})
		lease, err := a.locks.Acquire(t.Context(), "clocks", sqllock.AcquireOptions{NoRenewal: true})
		if err != nil {
			t.Fatal(err)
		}
		next, err := b.locks.Acquire(t.Context(), "clocks")
		if err != nil {
			t.Fatal(err)
		}
		overlap := lease.Context().Err() == nil
		if margin > ahead && overlap {
			t.Errorf("with a margin of %v the holder's context outlived the next grant", margin)
		}
		if margin == 0 && !overlap {
			t.Error("the naive margin is enough: is the clock of that node not ahead?")
		}
		tx := a.begin()
		if err := a.locks.Guard(t.Context(), tx, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the former holder passes the guard: %v", err)
		}
		_ = tx.Rollback()
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		_ = next.Release(t.Context())
	}
}

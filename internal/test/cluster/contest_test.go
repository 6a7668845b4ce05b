//go:build linux

package cluster_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// contest is a set of holders on several nodes that want the same leases. Their history is judged: one
// holder at a time, on whichever node, tokens that rise, and no commit behind a later grant.
type contest struct {
	t     *testing.T
	rec   *history.Recorder
	guard guard
	end   context.CancelFunc
	all   sync.WaitGroup
	well  []atomic.Int64 // by node: visits with a guarded commit
	// nobody counts the answers "held" that name no holder.
	nobody atomic.Int64
}

// guard returns an error if a transaction's term is over.
type guard func(ctx context.Context, o *opened, tx *sql.Tx, term sqllock.Term) error

// guarded is Holdfast's own. shared is the naive one on a cluster: it locks the row of the lease.
func guarded(ctx context.Context, o *opened, tx *sql.Tx, term sqllock.Term) error {
	return o.locks.Guard(ctx, tx, term)
}

func shared(ctx context.Context, _ *opened, tx *sql.Tx, term sqllock.Term) error {
	var token int64
	return tx.QueryRowContext(ctx, `SELECT token FROM holdfast_locks WHERE token = ? LOCK IN SHARE MODE`, term.Token()).Scan(&token)
}

const (
	contested = 4                      // leases, which three holders at each node want
	brief     = 300 * time.Millisecond // the TTL of those that expire
)

// startContest starts the holders.
func startContest(t *testing.T, urls []string, g guard) *contest {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	c := &contest{t: t, rec: history.New(), guard: g, end: end, well: make([]atomic.Int64, len(urls))}
	t.Cleanup(c.stop)
	for i, url := range urls {
		o := openOn(t, url, sqllock.Options{TTL: 2 * time.Second, Margin: 400 * time.Millisecond})
		for j := range 3 {
			c.all.Go(func() {
				for client := c.rec.Client(3*i + j); ctx.Err() == nil; {
					if err := c.visit(o, client); err == nil {
						c.well[i].Add(1)
					} else {
						time.Sleep(20 * time.Millisecond)
					}
				}
			})
		}
	}
	return c
}

// visit gets a lease, commits under its guard, and releases it. One of eight lets it expire instead, with
// another commit under way, which only the guard can refuse.
func (c *contest) visit(o *opened, client *history.Client) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer cancel()
	key := lockKey(rand.IntN(contested))
	expires := rand.IntN(8) == 0
	lease, term, err := c.get(ctx, o, client, key, expires)
	if err != nil {
		return err
	}
	stop := term.Watch(lease.Context())
	defer stop()
	wrote := c.write(ctx, o, lease, term, 0)
	if expires {
		_ = c.write(ctx, o, lease, term, rand.N(2*brief))
		<-lease.Context().Done()
		return wrote
	}
	time.Sleep(rand.N(5 * time.Millisecond))
	action := term.Release()
	switch err := lease.Release(ctx); {
	case err == nil:
		action.OK()
	case errors.Is(err, sqllock.ErrLost):
		action.Lost()
	default:
		return err
	}
	return wrote
}

// get records an attempt to acquire a lease.
func (c *contest) get(ctx context.Context, o *opened, client *history.Client, key string, expires bool) (*sqllock.Lease, *history.Term, error) {
	ask, opts := o.locks.Acquire, sqllock.AcquireOptions{}
	if rand.IntN(2) == 0 {
		ask = o.locks.TryAcquire
	}
	if expires {
		opts = sqllock.AcquireOptions{TTL: brief, NoRenewal: true}
	}
	grant := client.Grant(key)
	lease, err := ask(ctx, key, opts)
	var held *sqllock.HeldError
	switch {
	case err == nil:
		return lease, grant.Won(lease.Token(), time.Time{}), nil
	case errors.As(err, &held) && held.Remaining == 0: // nobody's: its row was locked, or the statement gave way too often
		grant.Failed()
		c.nobody.Add(1)
	case errors.Is(err, sqllock.ErrHeld):
		grant.Held()
	default:
		grant.Unknown()
	}
	return nil, nil, err
}

// write commits a transaction some time after it passed the guard.
func (c *contest) write(ctx context.Context, o *opened, lease *sqllock.Lease, term *history.Term, pause time.Duration) error {
	tx, err := o.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := c.guard(ctx, o, tx, lease.Term()); err != nil {
		return err
	}
	time.Sleep(pause)
	_, err = tx.ExecContext(ctx, `UPDATE fences SET back = back + CASE WHEN token > ? THEN 1 ELSE 0 END, token = ? WHERE lock_key = ?`, lease.Token(), lease.Token(), lease.Key())
	if err != nil {
		return err
	}
	action := term.Commit()
	err = tx.Commit()
	switch {
	case err == nil:
		action.OK()
	case o.db.CommitOutcome(err) == holdfast.NotDone:
		action.Failed()
	}
	return err
}

// flows waits until holders at each of these nodes had n more visits.
func (c *contest) flows(n int64, nodes ...int) {
	c.t.Helper()
	want := map[int]int64{}
	for _, i := range nodes {
		want[i] = c.well[i].Load() + n
	}
	for i, n := range want {
		dbtest.Eventually(c.t, fmt.Sprintf("leases at node %d", i), func() bool { return c.well[i].Load() >= n })
	}
}

func (c *contest) stop() {
	c.end()
	c.all.Wait()
}

// judge checks the history, and what the resource behind the guards saw, at one of the nodes.
func (c *contest) judge(head, url string) {
	c.t.Helper()
	var visits []int64
	for i := range c.well {
		visits = append(visits, c.well[i].Load())
	}
	ops := c.rec.History()
	fmt.Printf("%s leases=%d operations=%d visits=%v held by nobody=%d\n", head, contested, len(ops), visits, c.nobody.Load())
	history.Check(c.t, ops)
	var back int
	if err := dbtest.OpenSQL(c.t, url).QueryRowContext(c.t.Context(), `SELECT SUM(back) FROM fences`).Scan(&back); err != nil || back != 0 {
		c.t.Errorf("%d tokens went back: %v", back, err)
	}
}

// behind runs a contest while the other nodes have much to apply, until enough says so.
func behind(t *testing.T, urls []string, g guard, enough func(c *contest) bool) *contest {
	t.Helper()
	busy := openOn(t, urls[0], sqllock.Options{})
	c := startContest(t, urls, g)
	for end := time.Now().Add(dbtest.Hang); !enough(c); {
		busy.must(busy.pool, `UPDATE bulk SET n = n + 1`)
		if time.Now().After(end) {
			t.Fatalf("not enough within %v", dbtest.Hang)
		}
	}
	c.stop()
	return c
}

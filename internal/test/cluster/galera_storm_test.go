//go:build linux

package cluster_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestGalera kills nodes and brings them back while clients on all nodes request the same
// refunds.
func TestGalera(t *testing.T) {
	for _, c := range []struct{ nodes, killed int }{{3, 1}, {5, 2}} {
		t.Run(fmt.Sprintf("%dOf%d", c.killed, c.nodes), func(t *testing.T) {
			if testing.Short() && c.nodes > 3 {
				t.Skip("not in short mode")
			}
			killGalera(t, c.nodes, c.killed)
		})
	}
}

func killGalera(t *testing.T, size, killed int) {
	t.Helper()
	c := startGalera(t, size)
	own := dbtest.OpenSQL(t, c.nodes[0].url)
	business(t, own, "VARBINARY(64)")
	s := startStorm(t, c.clients())
	s.flows(100)
	for _, n := range c.nodes[size-killed:] {
		n.kill()
	}
	s.flows(200)
	for _, n := range c.nodes[size-killed:] {
		n.start()
	}
	s.flows(200)
	s.stop()
	s.report(fmt.Sprintf("cluster=galera nodes=%d killed=%d", size, killed), c.audit(s))
}

// clients returns two clients per node, which move to other nodes when theirs is gone. Every
// third client is impatient: its calls end before a view change does.
func (c *galera) clients() (list []client) {
	urls := c.urls()
	for i := range 2 * len(urls) {
		own := i % len(urls)
		patience := 15 * time.Second
		if i%3 == 2 {
			patience = 700 * time.Millisecond
		}
		list = append(list, client{
			URLs: append(append([]string{}, urls[own:]...), urls[:own]...), Patience: patience,
			Healthy: `SELECT 1 FROM orders LIMIT 1`,
		})
	}
	return list
}

// audit counts on every node; all nodes must report the same.
func (c *galera) audit(s *storm) (first audit) {
	c.t.Helper()
	answered := s.tally().answered
	for i, n := range c.nodes {
		pool := dbtest.OpenSQL(c.t, n.url)
		conn, err := pool.Conn(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		a, err := auditGalera(c.t, conn, answered)
		_ = conn.Close()
		if err != nil {
			c.t.Fatalf("%s: %v", n.name, err)
		}
		if i == 0 {
			first = a
		}
		if a != first {
			c.t.Errorf("%s says %+v, %s %+v", c.nodes[0].name, first, n.name, a)
		}
	}
	return first
}

func auditGalera(t *testing.T, conn *sql.Conn, answered map[int]bool) (audit, error) {
	t.Helper()
	if _, err := conn.ExecContext(t.Context(), `SET SESSION wsrep_sync_wait = 7`); err != nil {
		return audit{}, err
	}
	return look(t.Context(), conn, answered)
}

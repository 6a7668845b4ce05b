//go:build linux

package cluster_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestPostgres kills the primary during requests. The standby with the most log is promoted, and
// the old primary returns as a standby.
func TestPostgres(t *testing.T) {
	c := startPostgres(t, 2)
	old := c.nodes[0]
	business(t, dbtest.OpenSQL(t, old.URL()), "TEXT")
	s := startStorm(t, c.clients(6))
	s.flows(200)
	old.kill()
	primary := c.furthest(c.nodes[1:]...)
	c.promote(primary)
	s.flows(200)
	old.rewind(primary)
	s.flows(200)
	s.stop()
	s.report("cluster=postgres nodes=3 killed=1", c.audit(s, primary))
}

// clients use one DSN with all hosts, through database/sql and pgx alike. Every third is
// impatient.
func (c *replicated) clients(n int) (list []client) {
	for i := range n {
		patience := 15 * time.Second
		if i%3 == 2 {
			patience = 700 * time.Millisecond
		}
		list = append(list, client{URLs: []string{c.url()}, Native: i%2 == 0, Patience: patience})
	}
	return list
}

// audit counts on the primary, and on each standby once it has caught up with the primary.
func (c *replicated) audit(s *storm, primary *pgNode) (first audit) {
	c.t.Helper()
	answered := s.tally().answered
	lsn := primary.text(`SELECT pg_current_wal_lsn()::text`)
	all := []*pgNode{primary}
	for _, n := range c.nodes {
		if n != primary {
			all = append(all, n)
			dbtest.Eventually(c.t, n.Name+" is behind", func() bool { return n.text(`SELECT (pg_last_wal_replay_lsn() >= '`+lsn+`')::text`) == "true" })
		}
	}
	for _, n := range all {
		conn, err := n.pool.Conn(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		a, err := look(c.t.Context(), conn, answered)
		_ = conn.Close()
		if err != nil {
			c.t.Fatalf("%s: %v", n.Name, err)
		}
		if n == primary {
			first = a
		}
		if a != first {
			c.t.Errorf("%s says %+v, %s %+v", primary.Name, first, n.Name, a)
		}
	}
	return first
}

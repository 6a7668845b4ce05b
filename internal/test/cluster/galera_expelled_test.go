//go:build linux

package cluster_test

import (
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// expulsions are the faults after which the other nodes expel one.
var expulsions = map[string]struct {
	start      func(t *testing.T) *galera
	away, back func(n *galeraNode)
}{
	"frozen": {
		func(t *testing.T) *galera { t.Helper(); return startGalera(t, 3) },
		func(n *galeraNode) { n.signal(syscall.SIGSTOP) },
		func(n *galeraNode) { n.signal(syscall.SIGCONT) },
	},
	"cut off": {
		func(t *testing.T) *galera { t.Helper(); return startGaleraOn(t, startLAN(t, 3).hosts) },
		func(n *galeraNode) { n.host.cut(); n.alone() },
		func(n *galeraNode) { n.host.mend() },
	},
}

// TestGaleraExpelled freezes a node, or cuts it off from the others, until they have expelled it. Clients
// reach it all the time, and two of them know no other node. It comes back afterwards.
func TestGaleraExpelled(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	for name, fault := range expulsions {
		t.Run(name, func(t *testing.T) {
			c := fault.start(t)
			last := c.nodes[2]
			business(t, dbtest.OpenSQL(t, c.nodes[0].url), "VARBINARY(64)")
			clients := append(c.clients(), last.loyal()...)
			s := startStorm(t, clients)
			s.flows(100)
			fault.away(last)
			c.members(2)
			s.flows(200)
			for i := len(clients) - 2; i < len(clients); i++ {
				s.refused(i, 10)
			}
			fault.back(last)
			c.members(3)
			last.rejoined()
			s.flows(200)
			s.stop()
			s.report("cluster=galera nodes=3 node="+name, c.audit(s))
		})
	}
}

// TestGaleraCommits writes the same rows on all nodes, and one is frozen or cut off at the same time, a few
// times. What a COMMIT answers must be what is in the tables at the end.
func TestGaleraCommits(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	for name, fault := range expulsions {
		t.Run(name, func(t *testing.T) {
			g := fault.start(t)
			business(t, dbtest.OpenSQL(t, g.nodes[0].url), "VARBINARY(64)")
			c := startCommits(t, g.urls())
			for range 3 {
				c.flows(300)
				fault.away(g.nodes[2])
				g.members(2)
				c.flows(300)
				fault.back(g.nodes[2])
				g.members(3)
				g.nodes[2].rejoined()
			}
			c.flows(300)
			c.stop()
			for _, n := range g.nodes {
				c.judge(dbtest.OpenSQL(t, n.url+"?wsrep_sync_wait=7"))
			}
		})
	}
}

// TestGaleraHistories judges the history of leases that holders on all nodes want, while one node is frozen
// or cut off a few times.
func TestGaleraHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	t.Run("behind", galeraBehind)
	for name, fault := range expulsions {
		t.Run(name, func(t *testing.T) {
			g := fault.start(t)
			business(t, dbtest.OpenSQL(t, g.nodes[0].url), "VARBINARY(64)")
			c := startContest(t, g.urls(), guarded)
			for range 3 {
				c.flows(50, 0, 1, 2)
				fault.away(g.nodes[2])
				g.members(2)
				c.flows(50, 0, 1)
				fault.back(g.nodes[2])
				g.members(3)
				g.nodes[2].rejoined()
			}
			c.flows(50, 0, 1, 2)
			c.stop()
			c.judge("cluster=galera nodes=3 node="+name, g.nodes[2].url+"?wsrep_sync_wait=7")
		})
	}
}

// galeraBehind judges such a history where nodes apply changes late. With a lock on the row as the guard it
// has commits behind a later grant.
func galeraBehind(t *testing.T) {
	g := startGalera(t, 3)
	business(t, dbtest.OpenSQL(t, g.nodes[0].url), "VARBINARY(64)")
	bulk(openOn(t, g.nodes[0].url, sqllock.Options{}))
	for _, n := range g.nodes[1:] {
		n.exec(`SET GLOBAL wsrep_slave_threads = 1`)
	}
	naive := behind(t, g.urls(), shared, func(c *contest) bool { return len(history.Judge(c.rec.History())) > 0 })
	found := history.Judge(naive.rec.History())[0]
	t.Logf("the naive guard: %s: %s", found.Rule, found.Text)

	g.nodes[0].exec(`UPDATE own.fences SET token = 0, back = 0`)
	c := behind(t, g.urls(), guarded, func(c *contest) bool { return c.well[1].Load() >= 40 && c.well[2].Load() >= 40 })
	c.judge("cluster=galera nodes=3 node=behind", g.nodes[2].url+"?wsrep_sync_wait=7")
}

// alone waits until the node knows that it has lost its cluster. Clients reach it.
func (n *galeraNode) alone() {
	n.cluster.t.Helper()
	dbtest.Eventually(n.cluster.t, n.name+" has lost its cluster", func() bool { return n.status("wsrep_cluster_status") == "non-Primary" })
}

// members waits until the cluster has n nodes, as the first one sees it.
func (c *galera) members(n int) {
	c.t.Helper()
	dbtest.Eventually(c.t, "nodes leave or join", func() bool { return c.nodes[0].status("wsrep_cluster_size") == strconv.Itoa(n) })
}

// rejoined waits until the node is in the cluster that the first node is in. One that was frozen does not
// know yet that it was expelled, and calls itself synced.
func (n *galeraNode) rejoined() {
	n.cluster.t.Helper()
	const view = "wsrep_cluster_conf_id"
	dbtest.Eventually(n.cluster.t, n.name+" is in the cluster", func() bool {
		now := n.status(view)
		return now != "" && now == n.cluster.nodes[0].status(view)
	})
	n.synced()
}

// loyal returns clients, one of them impatient, that use this node alone, and whose check of its health is
// the naive one: it passes on a node that has lost its cluster.
func (n *galeraNode) loyal() (list []client) {
	for _, patience := range []time.Duration{15 * time.Second, 700 * time.Millisecond} {
		list = append(list, client{URLs: []string{n.url}, Healthy: `SELECT 1`, Patience: patience})
	}
	return list
}

//go:build linux

package cluster_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestGroup takes the primary away while clients request the same refunds: it is killed, frozen,
// or cut off from its group. It comes back afterwards.
func TestGroup(t *testing.T) {
	for name, fault := range map[string]struct{ away, back func(n *groupNode) }{
		"killed": {(*groupNode).kill, func(n *groupNode) {
			n.restart()
			n.join()
		}},
		"frozen":  {(*groupNode).freeze, (*groupNode).thaw},
		"cut off": {(*groupNode).cut, (*groupNode).mend},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "killed" {
				t.Skip("not in short mode")
			}
			g := startGroup(t, 3, false)
			old := g.nodes[0]
			g.business()
			s := startStorm(t, g.clients())
			s.flows(100)
			fault.away(old)
			g.primary(g.nodes[1:]...)
			s.flows(200)
			fault.back(old)
			old.rejoin("SECONDARY")
			s.flows(200)
			s.stop()
			s.report("cluster=group nodes=3 primary="+name, g.audit(s))
		})
	}
}

// TestGroupOfPrimaries kills one of three primaries while clients use all of them.
func TestGroupOfPrimaries(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	g := startGroup(t, 3, true)
	g.business()
	s := startStorm(t, g.clients())
	s.flows(100)
	last := g.nodes[2]
	last.kill()
	g.nodes[0].others(1)
	s.flows(200)
	last.restart()
	last.join()
	s.flows(200)
	s.stop()
	s.report("cluster=group nodes=3 primaries=3 killed=1", g.audit(s))
}

// TestGroupCommits writes the same rows on all primaries, and cuts one off its group at the same time. What
// a COMMIT answers must be what is in the tables at the end.
func TestGroupCommits(t *testing.T) {
	g := startGroup(t, 3, true)
	g.business()
	c := startCommits(t, g.urls())
	c.flows(1500)
	g.nodes[2].cut()
	c.flows(300)
	g.nodes[0].others(1)
	c.flows(500)
	g.nodes[2].mend()
	g.nodes[2].rejoin("PRIMARY")
	c.flows(500)
	c.stop()
	for _, url := range g.urls() { // which read what the other primaries have committed
		c.judge(dbtest.OpenSQL(t, url))
	}
}

// TestGroupHistories judges the history of leases that holders on all primaries want, while one is cut off
// its group a few times.
func TestGroupHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("not in short mode")
	}
	g := startGroup(t, 3, true)
	g.business()
	c := startContest(t, g.urls(), guarded)
	for range 2 {
		c.flows(50, 0, 1, 2)
		g.nodes[2].cut()
		g.nodes[0].others(1)
		c.flows(50, 0, 1)
		g.nodes[2].mend()
		g.nodes[2].rejoin("PRIMARY")
	}
	c.flows(50, 0, 1, 2)
	c.stop()
	c.judge("cluster=group nodes=3 primaries=3 cut off=1", g.urls()[2])
}

// others waits until the member sees n others in its group.
func (n *groupNode) others(want int) {
	n.group.t.Helper()
	dbtest.Eventually(n.group.t, n.name+" sees the others go or come", func() bool { return n.members() == want+1 })
}

// members counts the members of the group, as this one sees it.
func (n *groupNode) members() (count int) {
	_ = n.pool.QueryRowContext(n.group.t.Context(), `SELECT COUNT(*) FROM performance_schema.replication_group_members`).Scan(&count)
	return count
}

// business makes the tables.
func (g *group) business() {
	g.t.Helper()
	pool := dbtest.OpenSQL(g.t, g.urls()[0])
	business(g.t, pool, "VARBINARY(64)")
	_ = pool.Close() // before its server goes away
}

// rejoin waits until the member is in its group again, as another member sees it: the member itself calls
// itself ONLINE until it is told that it was expelled. One that has given up to rejoin by itself is told to.
func (n *groupNode) rejoin(as string) {
	t := n.group.t
	t.Helper()
	other := n.group.nodes[0]
	if other == n {
		other = n.group.nodes[1]
	}
	dbtest.Eventually(t, n.name+" is in its group", func() bool {
		state, role := n.state()
		if state == "ERROR" {
			_, _ = n.pool.ExecContext(t.Context(), `STOP GROUP_REPLICATION`)
			_, _ = n.pool.ExecContext(t.Context(), `START GROUP_REPLICATION`)
		}
		return state == "ONLINE" && role == as && other.members() == len(n.group.nodes)
	})
}

// clients returns two clients for each member, which look for the primary with each new
// connection. Every third client is impatient.
func (g *group) clients() (list []client) {
	urls := g.urls()
	for i := range 2 * len(urls) {
		own := i % len(urls)
		patience := 15 * time.Second
		if i%3 == 2 {
			patience = 700 * time.Millisecond
		}
		list = append(list, client{URLs: append(append([]string{}, urls[own:]...), urls[:own]...), Healthy: writable, Patience: patience})
	}
	return list
}

// audit counts on every member, once it has what the primary has; all must report the same.
func (g *group) audit(s *storm) (first audit) {
	g.t.Helper()
	answered := s.tally().answered
	var gtids string
	if err := g.primary(g.nodes...).pool.QueryRowContext(g.t.Context(), `SELECT @@global.gtid_executed`).Scan(&gtids); err != nil {
		g.t.Fatal(err)
	}
	for i, n := range g.nodes {
		pool := dbtest.OpenSQL(g.t, n.url())
		conn, err := pool.Conn(g.t.Context())
		if err != nil {
			g.t.Fatal(err)
		}
		var late int
		if err := conn.QueryRowContext(g.t.Context(), `SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 60)`, gtids).Scan(&late); err != nil || late != 0 {
			g.t.Fatalf("%s is behind: %v", n.name, err)
		}
		a, err := look(g.t.Context(), conn, answered)
		_ = conn.Close()
		if err != nil {
			g.t.Fatalf("%s: %v", n.name, err)
		}
		if i == 0 {
			first = a
		}
		if a != first {
			g.t.Errorf("%s says %+v, %s %+v", g.nodes[0].name, first, n.name, a)
		}
	}
	return first
}

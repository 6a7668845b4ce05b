//go:build linux

package cluster_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

const (
	// groupImage is the MySQL of the tests.
	groupImage = "mysql:9.7"
	// containerLife is after how many seconds a container ends that a killed test has left.
	containerLife = "3600"
)

// group is a replication group of MySQL servers in containers. The members speak with each other
// over a network of their own, so that a member can be cut off from the group and not from its
// clients.
type group struct {
	t       *testing.T
	name    string
	network string
	several bool // primaries
	nodes   []*groupNode
}

// groupNode is one of its members.
type groupNode struct {
	group   *group
	name    string
	address string  // for clients
	pool    *sql.DB // the test's own
}

// startGroup starts a group of n members with an empty database "own". The first one is the
// primary; with several, all are.
func startGroup(t *testing.T, n int, several bool) *group {
	t.Helper()
	needs(t, "docker")
	docker(t, "image", "inspect", "--format", "{{.Id}}", groupImage)
	id := "holdfast-" + strings.ToLower(rand.Text()[:10])
	g := &group{t: t, name: newUUID(), network: id, several: several}
	docker(t, "network", "create", id)
	t.Cleanup(func() { docker(t, "network", "rm", id) })
	var seeds []string
	for i := range n {
		node := &groupNode{group: g, name: id + "-" + strconv.Itoa(i+1), address: "127.0.0.1:" + dbtest.FreePort(t)}
		g.nodes = append(g.nodes, node)
		seeds = append(seeds, node.name+":33061")
	}
	for i, node := range g.nodes {
		args := []string{
			"create", "--name", node.name, "--hostname", node.name, "--publish", node.address + ":3306",
			"-e", "MYSQL_ALLOW_EMPTY_PASSWORD=1", "-e", "MYSQL_ROOT_HOST=%", "-e", "MYSQL_DATABASE=own",
			"--entrypoint", "bash", groupImage, "-c", "(sleep " + containerLife + "; kill 1) & exec docker-entrypoint.sh mysqld \"$@\"", "bash",
			"--server-id=" + strconv.Itoa(i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--mysqlx=OFF", "--skip-name-resolve",
			"--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=64M", "--max-connections=300",
			"--report-host=" + node.name, "--plugin-load-add=group_replication.so", "--loose-group-replication-group-name=" + g.name,
			"--loose-group-replication-local-address=" + seeds[i], "--loose-group-replication-group-seeds=" + strings.Join(seeds, ","),
			"--loose-group-replication-start-on-boot=OFF", "--loose-group-replication-recovery-get-public-key=ON",
		}
		if several {
			args = append(args, "--loose-group-replication-single-primary-mode=OFF", "--loose-group-replication-enforce-update-everywhere-checks=ON")
		}
		docker(t, args...)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s ends with\n%s", node.name, docker(t, "logs", "--tail", "30", node.name))
			}
			docker(t, "rm", "--force", "--volumes", node.name)
		})
		docker(t, "network", "connect", id, node.name)
		docker(t, "start", node.name)
	}
	for _, node := range g.nodes {
		node.reach()
		node.exec(`CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'`)
		node.exec(`RESET BINARY LOGS AND GTIDS`) // what the image's own start has written
	}
	first := g.nodes[0]
	first.exec(`SET GLOBAL group_replication_bootstrap_group = ON`)
	first.exec(`START GROUP_REPLICATION`)
	first.exec(`SET GLOBAL group_replication_bootstrap_group = OFF`)
	for _, node := range g.nodes[1:] {
		node.join()
	}
	return g
}

// newUUID returns the name of a group.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// docker runs a command of Docker and returns its output.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.Background(), "docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// reach waits until the server answers clients, and opens the test's pool.
func (n *groupNode) reach() {
	t := n.group.t
	t.Helper()
	n.pool = dbtest.OpenSQL(t, "mysql://root@tcp("+n.address+")/mysql")
	dbtest.Eventually(t, n.name+" answers", func() bool { return n.pool.PingContext(t.Context()) == nil })
}

// join brings the member into the group, and waits until it is a part of it.
func (n *groupNode) join() {
	n.group.t.Helper()
	n.exec(`START GROUP_REPLICATION`)
	n.is("ONLINE")
}

// is waits until the member has a state.
func (n *groupNode) is(state string) {
	n.group.t.Helper()
	dbtest.Eventually(n.group.t, n.name+" is "+state, func() bool { s, _ := n.state(); return s == state })
}

// state returns the member's state and role, by its own view.
func (n *groupNode) state() (state, role string) {
	_ = n.pool.QueryRowContext(n.group.t.Context(), `SELECT member_state, member_role FROM performance_schema.replication_group_members WHERE member_id = @@server_uuid`).Scan(&state, &role)
	return state, role
}

// primary waits until one of the members is primary and takes writes.
func (g *group) primary(of ...*groupNode) (is *groupNode) {
	g.t.Helper()
	dbtest.Eventually(g.t, "there is a primary", func() bool {
		for _, n := range of {
			var one int
			if n.pool.QueryRowContext(g.t.Context(), writable).Scan(&one) == nil {
				is = n
				return true
			}
		}
		return false
	})
	return is
}

// writable returns a row on a member that takes writes: it is a primary, and sees most of its group.
const writable = `SELECT 1 FROM performance_schema.replication_group_members m JOIN performance_schema.replication_group_members me
ON me.member_id = @@server_uuid AND me.member_state = 'ONLINE' AND me.member_role = 'PRIMARY' AND @@super_read_only = 0
HAVING SUM(m.member_state <> 'UNREACHABLE') * 2 > COUNT(*)`

func (n *groupNode) exec(query string) {
	n.group.t.Helper()
	if _, err := n.pool.ExecContext(n.group.t.Context(), query); err != nil {
		n.group.t.Fatalf("%s: %s: %v", n.name, query, err)
	}
}

func (n *groupNode) kill() {
	_ = n.pool.Close()
	docker(n.group.t, "kill", n.name)
}

func (n *groupNode) freeze() { docker(n.group.t, "pause", n.name) }
func (n *groupNode) thaw()   { docker(n.group.t, "unpause", n.name) }

// restart starts the server after kill, outside of its group.
func (n *groupNode) restart() {
	n.group.t.Helper()
	docker(n.group.t, "start", n.name)
	n.reach()
}

// cut takes the member off the group's network, and mend brings it back. Clients reach it all the
// time.
func (n *groupNode) cut()  { docker(n.group.t, "network", "disconnect", n.group.network, n.name) }
func (n *groupNode) mend() { docker(n.group.t, "network", "connect", n.group.network, n.name) }

// urls returns the URLs for clients, in the order of the members. A driver that rejects read-only
// servers closes its connections to a primary that is none any more.
func (g *group) urls() (list []string) {
	more := "?rejectReadOnly=true"
	if g.several {
		more += "&group_replication_consistency='BEFORE'"
	}
	for _, n := range g.nodes {
		list = append(list, n.url()+more)
	}
	return list
}

// url is of the database "own".
func (n *groupNode) url() string { return "mysql://root@tcp(" + n.address + ")/own" }

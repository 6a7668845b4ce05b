//go:build linux

package cluster_test

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// replicated is a PostgreSQL primary with standbys. At least one standby must have each commit
// (ANY 1).
type replicated struct {
	t     *testing.T
	nodes []*pgNode
}

// pgNode is one of its servers.
type pgNode struct {
	*process
	*dbtest.PostgresNode

	cluster *replicated
	pool    *sql.DB // the test's own pool
}

// startPostgres starts a primary, the first node, and n standbys.
func startPostgres(t *testing.T, n int) *replicated {
	t.Helper()
	needs(t)
	c := &replicated{t: t}
	var names []string
	for i := range n + 1 {
		its, err := dbtest.NewPostgresNode(t, "n"+strconv.Itoa(i+1))
		if err != nil {
			if os.Getenv(require) != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
		node := &pgNode{cluster: c, PostgresNode: its, pool: dbtest.OpenSQL(t, its.URL())}
		c.nodes = append(c.nodes, node)
		if i > 0 {
			names = append(names, node.Name)
		}
	}
	first := c.nodes[0]
	c.must(first.Init())
	c.configure(first, "listen_addresses='127.0.0.1'", "unix_socket_directories=''", "wal_log_hints=on", "wal_keep_size='256MB'",
		"shared_buffers='32MB'", "max_connections=200", "wal_sender_timeout='5s'", "wal_receiver_timeout='5s'", "wal_receiver_status_interval='1s'")
	first.start()
	for _, node := range c.nodes[1:] {
		c.must(node.CopyOf(first.PostgresNode))
		c.configure(node)
		node.start()
	}
	if n > 0 {
		first.sync("ANY 1 (" + strings.Join(names, ", ") + ")")
		dbtest.Eventually(t, "the standbys are not synchronous", func() bool {
			return first.text(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'`) == strconv.Itoa(n)
		})
	}
	return c
}

func (c *replicated) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// configure adds common settings, and settings for one node.
func (c *replicated) configure(n *pgNode, settings ...string) {
	c.t.Helper()
	c.must(n.Configure(append(settings, "port="+n.Port, "cluster_name='"+n.Name+"'")...))
}

// url returns a URL of all nodes that connects to the current primary.
func (c *replicated) url() string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, "127.0.0.1:"+n.Port)
	}
	return "postgres://holdfast@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=2"
}

// start starts the server and waits until it answers.
func (n *pgNode) start() {
	t := n.cluster.t
	t.Helper()
	_ = os.Remove(filepath.Join(n.Data(), "postmaster.pid")) // left by a server that was killed
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.cluster.must(err)
	defer log.Close()
	cmd := exec.Command(n.Program("postgres"), "-D", n.Data())
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: n.As}
	n.process = start(t, cmd)
	for end := time.Now().Add(dbtest.Hang); n.text(`SELECT 1`) != "1"; time.Sleep(20 * time.Millisecond) {
		if n.ended() || time.Now().After(end) {
			said, _ := os.ReadFile(n.Log())
			t.Fatalf("%s does not answer:\n%s", n.Name, said[max(0, len(said)-4000):])
		}
	}
}

// text returns the answer to a query, or "" if there is none.
func (n *pgNode) text(query string) (text string) {
	if err := n.pool.QueryRowContext(n.cluster.t.Context(), query).Scan(&text); err != nil {
		return ""
	}
	return text
}

func (n *pgNode) exec(query string) {
	n.cluster.t.Helper()
	if _, err := n.pool.ExecContext(n.cluster.t.Context(), query); err != nil {
		n.cluster.t.Fatalf("%s: %s: %v", n.Name, query, err)
	}
}

// sync sets the synchronous standbys of a primary. It commits nothing, because a commit could
// wait for them.
func (n *pgNode) sync(names string) {
	n.exec(fmt.Sprintf(`ALTER SYSTEM SET synchronous_standby_names = '%s'`, names))
	n.exec(`SELECT pg_reload_conf()`)
	dbtest.Eventually(n.cluster.t, "the setting is not there", func() bool { return n.text(`SHOW synchronous_standby_names`) == names })
}

// received returns how much of the log a standby has, in bytes.
func (n *pgNode) received() (bytes int64) {
	_, _ = fmt.Sscan(n.text(`SELECT (pg_last_wal_receive_lsn() - '0/0')::bigint`), &bytes)
	return bytes
}

// furthest returns the standby with the most log. Where any one standby may acknowledge, only
// this one may be promoted. furthest waits for log that is still on its way from a dead primary.
func (c *replicated) furthest(standbys ...*pgNode) *pgNode {
	c.t.Helper()
	for _, n := range standbys {
		dbtest.Eventually(c.t, n.Name+" still receives", func() bool { return n.text(`SELECT count(*) FROM pg_stat_wal_receiver`) == "0" })
	}
	best := standbys[0]
	for _, n := range standbys[1:] {
		if n.received() > best.received() {
			best = n
		}
	}
	return best
}

// promote makes a standby the primary; the other nodes become its synchronous standbys.
func (c *replicated) promote(n *pgNode) {
	c.t.Helper()
	var others []string
	for _, o := range c.nodes {
		if o != n {
			others = append(others, o.Name)
		}
	}
	n.exec(`SELECT pg_promote(true, 30)`)
	n.sync("ANY 1 (" + strings.Join(others, ", ") + ")")
	for _, o := range c.nodes {
		if o != n && !o.ended() && o.text(`SELECT pg_is_in_recovery()::text`) == "true" {
			o.follow(n)
		}
	}
}

// follow makes a standby stream from another primary.
func (n *pgNode) follow(primary *pgNode) {
	n.exec(`ALTER SYSTEM SET primary_conninfo = '` + n.Conninfo(primary.PostgresNode) + `'`)
	n.exec(`SELECT pg_reload_conf()`)
}

// rewind turns an old primary that is down into a standby of the new one. Changes that only the
// old primary has are discarded.
func (n *pgNode) rewind(primary *pgNode) {
	primary.exec(`CHECKPOINT`)
	_ = os.Remove(filepath.Join(n.Data(), "postmaster.pid"))
	n.cluster.must(n.Run("pg_rewind", "-D", n.Data(), "-R", "--source-server="+n.Conninfo(primary.PostgresNode)+" dbname=postgres"))
	n.cluster.configure(n, "primary_conninfo='"+n.Conninfo(primary.PostgresNode)+"'")
	auto := filepath.Join(n.Data(), "postgresql.auto.conf") // copied from the new primary
	n.cluster.must(os.WriteFile(auto, nil, 0o600))
	n.start()
}

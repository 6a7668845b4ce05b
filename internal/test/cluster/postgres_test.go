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
	as    *syscall.Credential
	bin   string
	nodes []*pgNode
}

// pgNode is one of its servers.
type pgNode struct {
	*process

	cluster *replicated
	name    string
	dir     string
	port    string
	pool    *sql.DB // the test's own pool
}

// startPostgres starts a primary, the first node, and n standbys.
func startPostgres(t *testing.T, n int) *replicated {
	t.Helper()
	needs(t)
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		if os.Getenv(require) != "" {
			t.Fatal("no initdb in /usr/lib/postgresql/*/bin")
		}
		t.Skip("no initdb in /usr/lib/postgresql/*/bin")
	}
	c := &replicated{t: t, as: dbtest.Account(t, "postgres"), bin: filepath.Dir(found[len(found)-1])}
	var names []string
	for i := range n + 1 {
		node := &pgNode{cluster: c, name: "n" + strconv.Itoa(i+1), dir: dbtest.OwnFolder(t, c.as), port: dbtest.FreePort(t)}
		node.pool = dbtest.OpenSQL(t, node.url())
		c.nodes = append(c.nodes, node)
		if i > 0 {
			names = append(names, node.name)
		}
	}
	first := c.nodes[0]
	first.run("initdb", "-D", first.data(), "-U", "holdfast", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	c.configure(first, "listen_addresses='127.0.0.1'", "unix_socket_directories=''", "wal_log_hints=on", "wal_keep_size='256MB'",
		"shared_buffers='32MB'", "max_connections=200", "wal_sender_timeout='5s'", "wal_receiver_timeout='5s'", "wal_receiver_status_interval='1s'")
	first.start()
	for _, node := range c.nodes[1:] {
		node.run("pg_basebackup", "-d", first.url(), "-D", node.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", first.url()+"&application_name="+node.name)
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

// configure adds common settings, and settings for one node.
func (c *replicated) configure(n *pgNode, settings ...string) {
	c.t.Helper()
	settings = append(settings, "port="+n.port, "cluster_name='"+n.name+"'")
	file := filepath.Join(n.data(), "postgresql.conf")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(text, []byte("\n"+strings.Join(settings, "\n")+"\n")...), 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (n *pgNode) data() string { return filepath.Join(n.dir, "data") }

func (n *pgNode) url() string {
	return "postgres://holdfast@127.0.0.1:" + n.port + "/postgres?sslmode=disable"
}

// url returns a URL of all nodes that connects to the current primary.
func (c *replicated) url() string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, "127.0.0.1:"+n.port)
	}
	return "postgres://holdfast@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=2"
}

func (n *pgNode) run(program string, args ...string) {
	n.cluster.t.Helper()
	dbtest.RunAs(n.cluster.t, n.cluster.as, n.dir, filepath.Join(n.cluster.bin, program), args...)
}

// start starts the server and waits until it answers.
func (n *pgNode) start() {
	t := n.cluster.t
	t.Helper()
	_ = os.Remove(filepath.Join(n.data(), "postmaster.pid")) // left by a server that was killed
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(n.cluster.bin, "postgres"), "-D", n.data())
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: n.cluster.as}
	n.process = start(t, cmd)
	for end := time.Now().Add(dbtest.Hang); n.text(`SELECT 1`) != "1"; time.Sleep(20 * time.Millisecond) {
		if n.ended() || time.Now().After(end) {
			said, _ := os.ReadFile(filepath.Join(n.dir, "log"))
			t.Fatalf("%s does not answer:\n%s", n.name, said[max(0, len(said)-4000):])
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
		n.cluster.t.Fatalf("%s: %s: %v", n.name, query, err)
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
		dbtest.Eventually(c.t, n.name+" still receives", func() bool { return n.text(`SELECT count(*) FROM pg_stat_wal_receiver`) == "0" })
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
			others = append(others, o.name)
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

// conninfo returns the connection string of a standby.
func (n *pgNode) conninfo(primary *pgNode) string {
	return "host=127.0.0.1 port=" + primary.port + " user=holdfast application_name=" + n.name
}

// follow makes a standby stream from another primary.
func (n *pgNode) follow(primary *pgNode) {
	n.exec(`ALTER SYSTEM SET primary_conninfo = '` + n.conninfo(primary) + `'`)
	n.exec(`SELECT pg_reload_conf()`)
}

// rewind turns an old primary that is down into a standby of the new one. Changes that only the
// old primary has are discarded.
func (n *pgNode) rewind(primary *pgNode) {
	primary.exec(`CHECKPOINT`)
	_ = os.Remove(filepath.Join(n.data(), "postmaster.pid"))
	n.run("pg_rewind", "-D", n.data(), "-R", "--source-server="+n.conninfo(primary)+" dbname=postgres")
	n.cluster.configure(n, "primary_conninfo='"+n.conninfo(primary)+"'")
	auto := filepath.Join(n.data(), "postgresql.auto.conf") // copied from the new primary
	if err := os.WriteFile(auto, nil, 0o600); err != nil {
		n.cluster.t.Fatal(err)
	}
	n.start()
}

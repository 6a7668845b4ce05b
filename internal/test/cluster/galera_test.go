//go:build linux

package cluster_test

import (
	"database/sql"
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

// provider is the path of Galera's library on Debian and Ubuntu.
const provider = "/usr/lib/galera/libgalera_smm.so"

// galera is a cluster on 127.0.0.1, or on a network of its own.
type galera struct {
	t     *testing.T
	as    *syscall.Credential
	nodes []*galeraNode
}

// galeraNode is one of its servers.
type galeraNode struct {
	*process

	cluster *galera
	name    string
	url     string // of the database "own"
	dir     string
	host    *host  // nil for 127.0.0.1
	address string // of the host
	port    string // for SQL; group, IST and SST use other ports
	group   string
	ist     string
	sst     string
	pool    *sql.DB // the test's own pool
	clock   string  // the offset for faketime, such as "+60s"
}

// startGalera starts n nodes with an empty database "own".
func startGalera(t *testing.T, n int) *galera {
	t.Helper()
	return startGaleraOn(t, make([]*host, n))
}

// startGaleraOn starts a node on each of these hosts; nil is 127.0.0.1.
func startGaleraOn(t *testing.T, hosts []*host) *galera {
	t.Helper()
	needs(t, "mariadbd", "mariadb-install-db", "wsrep_sst_rsync", "rsync", "cp")
	if _, err := os.Stat(provider); err != nil {
		if os.Getenv(require) != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	c := &galera{t: t, as: dbtest.Account(t, "mysql", "nobody")}
	for i, h := range hosts {
		node := &galeraNode{
			cluster: c, name: "n" + strconv.Itoa(i+1), dir: dbtest.OwnFolder(t, c.as), host: h, address: "127.0.0.1",
			port: dbtest.FreePort(t), group: dbtest.FreePort(t), ist: dbtest.FreePort(t), sst: dbtest.FreePort(t),
		}
		node.url = "mysql://root@tcp(127.0.0.1:" + node.port + ")/own"
		if h != nil {
			node.address = h.address
			node.url = "mysql://root@unix(" + node.socket() + ")/own"
		}
		c.nodes = append(c.nodes, node)
	}
	first := c.nodes[0]
	dbtest.RunAs(t, c.as, first.dir, dbtest.Find("mariadb-install-db"), "--no-defaults", "--datadir="+first.data(), "--tmpdir="+first.dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--force")
	for _, node := range c.nodes[1:] {
		dbtest.RunAs(t, c.as, node.dir, dbtest.Find("cp"), "-a", first.data(), node.data())
	}
	for i, node := range c.nodes { // one at a time: each needs a donor
		if i > 0 {
			node.start()
			continue
		}
		node.start("--wsrep-new-cluster")
		node.exec("CREATE DATABASE own")
	}
	return c
}

func (n *galeraNode) data() string   { return filepath.Join(n.dir, "data") }
func (n *galeraNode) socket() string { return filepath.Join(n.dir, "s") }

// start starts the server and waits until it is in sync with the others.
func (n *galeraNode) start(options ...string) {
	t := n.cluster.t
	t.Helper()
	var all []string
	for _, other := range n.cluster.nodes {
		all = append(all, other.address+":"+other.group)
	}
	args := append([]string{
		"--no-defaults", "--datadir=" + n.data(), "--tmpdir=" + n.dir, "--socket=" + n.socket(), "--pid-file=" + filepath.Join(n.dir, "pid"),
		"--bind-address=" + n.address, "--port=" + n.port, "--skip-name-resolve", "--performance-schema=OFF", "--max-connections=500",
		"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=1",
		"--binlog-format=ROW", "--default-storage-engine=InnoDB", "--innodb-autoinc-lock-mode=2",
		"--wsrep-on=ON", "--wsrep-provider=" + provider, "--wsrep-cluster-name=holdfast", "--wsrep-cluster-address=gcomm://" + strings.Join(all, ","),
		"--wsrep-node-name=" + n.name, "--wsrep-node-address=" + n.address + ":" + n.group, "--wsrep-sst-method=rsync", "--wsrep-sst-receive-address=" + n.address + ":" + n.sst,
		"--wsrep-slave-threads=2",
		"--wsrep-provider-options=base_port=" + n.group + ";gmcast.listen_addr=tcp://" + n.address + ":" + n.group + ";ist.recv_addr=" + n.address + ":" + n.ist +
			";gcache.size=64M;pc.recovery=false",
	}, options...)
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	program := dbtest.Find("mariadbd")
	if n.clock != "" {
		args = append([]string{"-f", n.clock, program}, args...)
		program = dbtest.Find("faketime")
	}
	cmd := exec.Command(program, args...)
	if n.host != nil {
		cmd = n.host.command(n.cluster.as, program, args...)
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: n.cluster.as}
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = n.dir, log, log
	n.process = start(t, cmd)
	if n.pool == nil {
		n.pool = dbtest.OpenSQL(t, strings.TrimSuffix(n.url, "own")+"mysql")
	}
	n.synced()
}

// synced waits until the node is a synced member of the cluster.
func (n *galeraNode) synced() {
	t := n.cluster.t
	t.Helper()
	for end := time.Now().Add(dbtest.Hang); n.status("wsrep_local_state_comment") != "Synced" || n.status("wsrep_ready") != "ON"; time.Sleep(50 * time.Millisecond) {
		if n.ended() || time.Now().After(end) {
			said, _ := os.ReadFile(filepath.Join(n.dir, "log"))
			t.Fatalf("%s is not in step:\n%s", n.name, said[max(0, len(said)-4000):])
		}
	}
}

// status returns a status variable, or "" if the node does not answer.
func (n *galeraNode) status(name string) string {
	var variable, value string
	if err := n.pool.QueryRowContext(n.cluster.t.Context(), `SHOW STATUS LIKE '`+name+`'`).Scan(&variable, &value); err != nil {
		return ""
	}
	return value
}

func (n *galeraNode) exec(query string) {
	n.cluster.t.Helper()
	if _, err := n.pool.ExecContext(n.cluster.t.Context(), query); err != nil {
		n.cluster.t.Fatalf("%s: %s: %v", n.name, query, err)
	}
}

// urls returns the URLs of the nodes in order.
func (c *galera) urls() (list []string) {
	for _, n := range c.nodes {
		list = append(list, n.url)
	}
	return list
}

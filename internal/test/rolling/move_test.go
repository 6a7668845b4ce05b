package rolling

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestDumpAndRestore stops the version before, moves its database by the engine's own dump, and goes on there with both.
func TestDumpAndRestore(t *testing.T) {
	onlyRolling(t)
	old, next := build(t, "old", before(t), nil), build(t, "new", "HEAD", nil)
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := newStorm(t, e)
		s.phase(5*time.Second, old, old)
		s.moveTo(s.dumped())
		s.phase(6*time.Second, next, old, next)
		s.wantRight(old, next)
	})
}

// moveTo goes on at another database.
func (s *storm) moveTo(url string) {
	s.Helper()
	s.url, s.pool = url, dbtest.OpenSQL(s.T, url)
}

// dumped copies the database with the tools of its engine, and returns the URL of the copy.
func (s *storm) dumped() string {
	s.Helper()
	name := "hf_moved_" + strings.ToLower(rand.Text()[:12])
	if s.engine == dbtest.SQLite {
		path := filepath.Join(s.TempDir(), name+".db")
		s.exec(`VACUUM INTO '` + path + `'`)
		return "sqlite://" + path
	}
	s.exec(`CREATE DATABASE ` + name)
	s.Cleanup(func() {
		_, err := dbtest.OpenSQL(s.T, s.admin()).ExecContext(context.WithoutCancel(s.Context()), `DROP DATABASE `+name+map[bool]string{true: ` WITH (FORCE)`}[s.engine == dbtest.Postgres])
		must(s.T, err)
	})
	if s.engine == dbtest.Postgres {
		u := s.parsed()
		password, _ := u.User.Password()
		env, user, from := "PGPASSWORD="+password, u.User.Username(), strings.TrimPrefix(u.Path, "/")
		dump := s.tool(nil, env, "pg_dump", "-h", "127.0.0.1", "-U", user, "-n", u.Query().Get("search_path"), from)
		s.tool(dump, env, "psql", "-h", "127.0.0.1", "-U", user, "-v", "ON_ERROR_STOP=1", "-q", name)
		u.Path = "/" + name
		return u.String()
	}
	config, err := mysqldriver.ParseDSN(strings.TrimPrefix(s.url, "mysql://"))
	must(s.T, err)
	client := map[dbtest.Engine]string{dbtest.MySQL: "mysql", dbtest.MariaDB: "mariadb"}[s.engine]
	env := "MYSQL_PWD=" + config.Passwd
	tool := map[string][]string{"mysql": {"mysqldump", "--set-gtid-purged=OFF"}, "mariadb": {"mariadb-dump"}}[client]
	dump := s.tool(nil, env, append(tool, "-u"+config.User, "--single-transaction", "--routines", config.DBName)...)
	s.tool(dump, env, client, "-u"+config.User, name)
	config.DBName = name
	return "mysql://" + config.FormatDSN()
}

// admin is where the storm's first database was made.
func (s *storm) admin() string {
	return os.Getenv(map[dbtest.Engine]string{dbtest.Postgres: "HOLDFAST_TEST_POSTGRES_DSN", dbtest.MySQL: "HOLDFAST_TEST_MYSQL_DSN", dbtest.MariaDB: "HOLDFAST_TEST_MARIADB_DSN"}[s.engine])
}

func (s *storm) parsed() *url.URL {
	s.Helper()
	u, err := url.Parse(s.url)
	must(s.T, err)
	return u
}

// tool runs a program beside the server, in its container, and returns what it writes.
func (s *storm) tool(input []byte, env string, args ...string) []byte {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), "docker", append([]string{"exec", "-i", "-e", env, s.container()}, args...)...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), &said
	out, err := cmd.Output()
	if err != nil {
		s.Fatalf("%s: %v: %s", args[0], err, said.String())
	}
	return out
}

// container finds the server's container by its address.
func (s *storm) container() string {
	s.Helper()
	host := ""
	if s.engine == dbtest.Postgres {
		host = s.parsed().Host
	} else {
		config, err := mysqldriver.ParseDSN(strings.TrimPrefix(s.url, "mysql://"))
		must(s.T, err)
		host = config.Addr
	}
	ip, port, _ := strings.Cut(host, ":")
	ids, err := exec.CommandContext(s.Context(), "docker", "ps", "-q").Output()
	must(s.T, err)
	for id := range strings.FieldsSeq(string(ids)) {
		is, _ := exec.CommandContext(s.Context(), "docker", "inspect", "-f", `{{range .NetworkSettings.Networks}} {{.IPAddress}} {{end}}{{range .NetworkSettings.Ports}}{{range .}} :{{.HostPort}} {{end}}{{end}}`, id).Output()
		if strings.Contains(string(is), " "+ip+" ") || strings.Contains(string(is), " :"+port+" ") {
			return id
		}
	}
	s.Skipf("capability \"docker\": the server at %s is in no container here, so its own dump cannot be run beside it", host)
	return ""
}

// TestNewMajorVersion moves the version before from PostgreSQL 15 to 18 by logical replication while it works, stops it, and goes on
// there with this version.
func TestNewMajorVersion(t *testing.T) {
	onlyRolling(t)
	old, next := build(t, "old", before(t), nil), build(t, "new", "HEAD", nil)
	publisher := dbtest.OwnPostgres(t, "-c wal_level=logical")
	s := newStormAt(t, dbtest.Postgres, publisher.URL)
	s.phase(4*time.Second, old, old)

	to := newest(t)
	dump, err := exec.CommandContext(t.Context(), "pg_dump", "--schema-only", "--no-owner", "-d", publisher.URL).Output()
	must(t, err)
	restore := exec.CommandContext(t.Context(), "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", to)
	restore.Stdin = bytes.NewReader(dump)
	if out, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
	s.exec(`CREATE PUBLICATION move FOR ALL TABLES`)
	subscriber := dbtest.OpenSQL(t, to)
	_, err = subscriber.ExecContext(t.Context(), `CREATE SUBSCRIPTION move CONNECTION '`+strings.ReplaceAll(publisher.URL, "'", "''")+`' PUBLICATION move`)
	must(t, err)
	s.phase(5*time.Second, old, old)

	var end string
	must(t, s.pool.QueryRowContext(t.Context(), `SELECT pg_current_wal_lsn()::text`).Scan(&end))
	dbtest.Eventually(t, "the new server has it all", func() bool {
		return s.count(`SELECT COUNT(*) FROM pg_replication_slots WHERE slot_name = 'move' AND confirmed_flush_lsn >= '`+end+`'`) == 1
	})
	earlier := s.count(`SELECT COUNT(*) FROM roll_effects`)
	s.moveTo(to)
	if n := s.count(`SELECT COUNT(*) FROM roll_effects`); n != earlier {
		t.Fatalf("%d of %d effects have arrived", n, earlier)
	}
	s.exec(`DROP SUBSCRIPTION move`)
	for _, table := range []string{"roll_effects", "roll_answers", "roll_tokens"} { // sequences are not replicated; Holdfast's tables have none
		s.exec(`SELECT setval(pg_get_serial_sequence('` + table + `', 'id'), (SELECT MAX(id) FROM ` + table + `))`)
	}
	if n := s.count(`SELECT COUNT(*) FROM pg_class WHERE relkind = 'S' AND relname LIKE 'holdfast%'`); n > 0 {
		t.Errorf("Holdfast's tables have %d sequences", n)
	}
	s.phase(6*time.Second, next, old, next)
	s.wantRight(old, next)
	var version string
	must(t, s.pool.QueryRowContext(t.Context(), `SHOW server_version`).Scan(&version))
	t.Logf("on PostgreSQL %s", version)
}

// newest starts PostgreSQL 18 on the host's own network, and returns its URL.
func newest(t *testing.T) string {
	t.Helper()
	port := dbtest.FreePort(t)
	id, err := exec.CommandContext(t.Context(), "docker", "run", "-d", "--network", "host", "-e", "POSTGRES_HOST_AUTH_METHOD=trust",
		"postgres:18", "-c", "listen_addresses=127.0.0.1", "-c", "port="+port).Output()
	must(t, err)
	t.Cleanup(func() { run(t, ".", "docker", "rm", "-f", strings.TrimSpace(string(id))) })
	address := "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"
	pool := dbtest.OpenSQL(t, address)
	dbtest.Eventually(t, "the new server answers", func() bool { return pool.PingContext(t.Context()) == nil })
	return address
}

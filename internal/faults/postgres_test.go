package faults_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// postgres is a server of the test's own, which it may stop and start.
type postgres struct {
	bin, data, options, url string
	as                      *syscall.Credential
}

// ownPostgres starts PostgreSQL from the binaries of this machine. Where there
// are none, or no account that may run them, the test is skipped and says so.
func ownPostgres(t *testing.T) *postgres {
	t.Helper()
	if !slices.Contains(dbtest.Engines(), dbtest.Postgres) {
		t.Skip("capability \"own server\": not where PostgreSQL is not tested")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("capability \"own server\": no initdb in /usr/lib/postgresql/*/bin; connections are cut instead, in the other subtest")
	}
	s := &postgres{bin: filepath.Dir(found[len(found)-1])}
	if os.Getuid() == 0 { // PostgreSQL does not run as root
		account, err := user.Lookup("postgres")
		if err != nil {
			t.Skip("capability \"own server\": root without an account postgres")
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	dir, err := os.MkdirTemp("", "holdfast-faults-") //nolint:usetesting // the account postgres has to get in
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if s.as != nil {
		if err := os.Chown(dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	s.data = filepath.Join(dir, "data")
	s.options = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -p " + port
	s.url = "postgres://holdfast@127.0.0.1:" + port + "/postgres?sslmode=disable"
	s.run(t, "initdb", "-D", s.data, "-U", "holdfast", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	s.run(t, "pg_ctl", "-D", s.data, "-l", filepath.Join(dir, "log"), "-o", s.options, "-w", "start")
	t.Cleanup(func() { s.run(t, "pg_ctl", "-D", s.data, "-m", "immediate", "-w", "stop") })
	return s
}

// restart crashes the server and starts it again.
func (s *postgres) restart(t *testing.T) {
	t.Helper()
	s.run(t, "pg_ctl", "-D", s.data, "-l", filepath.Join(filepath.Dir(s.data), "log"), "-o", s.options, "-m", "immediate", "-w", "restart")
}

func (s *postgres) run(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(s.bin, program), args...)
	cmd.Dir = filepath.Dir(s.data)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	log, err := os.CreateTemp(t.TempDir(), program)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log // not a pipe: the server inherits it
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("%s: %v\n%s", program, err, said)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

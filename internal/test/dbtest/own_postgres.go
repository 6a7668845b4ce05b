//go:build unix

package dbtest

import (
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// PostgresServer is a separate server that a test may stop and start.
type PostgresServer struct {
	URL string

	bin, data, options string
	as                 *syscall.Credential
}

// OwnPostgres starts PostgreSQL from the binaries of this machine, with options of the form -c
// name=value. If binaries or a suitable account are missing, the test is skipped with that
// reason.
func OwnPostgres(tb testing.TB, options string) *PostgresServer {
	tb.Helper()
	if !slices.Contains(Engines(), Postgres) {
		tb.Skip("capability \"own server\": not where PostgreSQL is not tested")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		tb.Skip("capability \"own server\": no initdb in /usr/lib/postgresql/*/bin")
	}
	s := &PostgresServer{bin: filepath.Dir(found[len(found)-1]), as: Account(tb, "postgres")}
	s.data = filepath.Join(OwnFolder(tb, s.as), "data")
	s.run(tb, "initdb", "-D", s.data, "-U", "holdfast", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C")
	s.start(tb, options)
	return s
}

// start starts the server in the data folder; it runs until the test ends.
func (s *PostgresServer) start(tb testing.TB, options string) {
	tb.Helper()
	port := FreePort(tb)
	s.options = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -p " + port + " " + options
	s.URL = "postgres://holdfast@127.0.0.1:" + port + "/postgres?sslmode=disable"
	s.run(tb, "pg_ctl", "-D", s.data, "-l", s.log(), "-o", s.options, "-w", "start")
	tb.Cleanup(func() { s.run(tb, "pg_ctl", "-D", s.data, "-m", "immediate", "-w", "stop") })
}

// Standby starts a standby that streams from s.
func (s *PostgresServer) Standby(tb testing.TB) *PostgresServer {
	tb.Helper()
	standby := &PostgresServer{bin: s.bin, as: s.as}
	standby.data = filepath.Join(OwnFolder(tb, s.as), "data")
	standby.run(tb, "pg_basebackup", "-d", s.URL, "-D", standby.data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	standby.start(tb, "")
	return standby
}

// Restart crashes the server and starts it again.
func (s *PostgresServer) Restart(tb testing.TB) {
	tb.Helper()
	s.run(tb, "pg_ctl", "-D", s.data, "-l", s.log(), "-o", s.options, "-m", "immediate", "-w", "restart")
}

func (s *PostgresServer) log() string { return filepath.Join(filepath.Dir(s.data), "log") }

func (s *PostgresServer) run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	RunAs(tb, s.as, filepath.Dir(s.data), filepath.Join(s.bin, program), args...)
}

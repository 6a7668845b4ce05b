//go:build unix

package dbtest

import (
	"slices"
	"testing"
)

// PostgresServer is a separate server that a test may stop and start.
type PostgresServer struct {
	URL string

	node    *PostgresNode
	options string
}

// OwnPostgres starts PostgreSQL from the binaries of this machine, with options of the form -c
// name=value. If binaries or a suitable account are missing, the test is skipped with that
// reason.
func OwnPostgres(tb testing.TB, options string) *PostgresServer {
	tb.Helper()
	if !slices.Contains(Engines(), Postgres) {
		tb.Skip("capability \"own server\": not where PostgreSQL is not tested")
	}
	s := newOwnPostgres(tb)
	if err := s.node.Init(); err != nil {
		tb.Fatal(err)
	}
	s.start(tb, options)
	return s
}

func newOwnPostgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	node, err := NewPostgresNode(tb, "standby")
	if err != nil {
		tb.Skip("capability \"own server\": " + err.Error())
	}
	return &PostgresServer{URL: node.URL(), node: node}
}

// start starts the server in the data folder; it runs until the test ends.
func (s *PostgresServer) start(tb testing.TB, options string) {
	tb.Helper()
	s.options = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -p " + s.node.Port + " " + options
	s.run(tb, "pg_ctl", "-D", s.node.Data(), "-l", s.node.Log(), "-o", s.options, "-w", "start")
	tb.Cleanup(func() { s.run(tb, "pg_ctl", "-D", s.node.Data(), "-m", "immediate", "-w", "stop") })
}

// Standby starts a standby that streams from s.
func (s *PostgresServer) Standby(tb testing.TB) *PostgresServer {
	tb.Helper()
	standby := newOwnPostgres(tb)
	if err := standby.node.CopyOf(s.node); err != nil {
		tb.Fatal(err)
	}
	standby.start(tb, "")
	return standby
}

// Restart crashes the server and starts it again.
func (s *PostgresServer) Restart(tb testing.TB) {
	tb.Helper()
	s.run(tb, "pg_ctl", "-D", s.node.Data(), "-l", s.node.Log(), "-o", s.options, "-m", "immediate", "-w", "restart")
}

func (s *PostgresServer) run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	if err := s.node.Run(program, args...); err != nil {
		tb.Fatal(err)
	}
}

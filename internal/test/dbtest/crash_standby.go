//go:build unix

package dbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"
)

func crashPostgres(tb testing.TB, env []string) (*CrashServer, error) {
	node, err := NewPostgresNode(tb, "standby")
	if err != nil {
		return nil, err
	}
	if err := node.Init(); err != nil {
		tb.Fatal(err)
	}
	return crashNode(node, env), nil
}

// crashNode returns the server of a node that has data, or will have. A connection between primary and standby
// is not lost because the clock leaps, and a standby comes back at once after a crash of its primary.
func crashNode(node *PostgresNode, env []string) *CrashServer {
	program := program(node.As, node.Dir, node.Log(), env, node.Program("postgres"), "-D", node.Data(), "-p", node.Port,
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200",
		"-c", "wal_sender_timeout=0", "-c", "wal_receiver_timeout=0", "-c", "wal_retrieve_retry_interval=100ms")
	return &CrashServer{
		URL: node.URL(), admin: node.URL(), log: node.Log(), kill: killAll, How: node.Program("postgres"), launch: program,
		engine: Postgres, node: node, env: env,
	}
}

// Address returns the server's host:port.
func (s *CrashServer) Address() string { return s.node.Address() }

// NewStandby starts a synchronous standby: see Follow. Only a PostgreSQL can have one. It is removed when the
// test ends.
func (s *CrashServer) NewStandby(tb testing.TB) (*CrashServer, error) {
	tb.Helper()
	if s.node == nil {
		return nil, errors.New("only PostgreSQL has a standby here")
	}
	node, err := NewPostgresNode(tb, s.node.Name)
	if err != nil {
		return nil, err
	}
	standby := crashNode(node, s.env)
	tb.Cleanup(func() { _ = standby.Kill() })
	err = standby.Follow(s)
	return standby, err
}

// Follow makes a server that is down the synchronous standby of primary: each commit that primary acknowledges
// from then on is in the log of both. What the server had is replaced by a copy. Commits wait while the standby
// starts, not while primary is copied.
func (s *CrashServer) Follow(primary *CrashServer) error {
	err := s.node.CopyOf(primary.node)
	if err != nil && primary.Start() == nil { // after the crash of one of its processes it ends all connections, and answers again
		err = s.node.CopyOf(primary.node)
	}
	if err != nil {
		return fmt.Errorf("%w; its primary:\n%s", err, primary.said())
	}
	return primary.asAdmin(func(ctx context.Context, conn *sql.Conn) error {
		err := synchronous(ctx, conn, s.node.Name)
		var released <-chan error
		if err == nil {
			released, err = primary.waitingCommit(ctx, conn)
		}
		if err == nil {
			err = s.Start() //nolint:contextcheck // it has a bound of its own
		}
		if err == nil {
			err = <-released
		}
		if err == nil {
			err = inStep(ctx, conn)
		}
		if err != nil {
			err = errors.Join(err, synchronous(ctx, conn, "")) // otherwise all commits would wait for ever
		}
		return err
	})
}

// InStep waits until the standby is connected and has all that the server had written at the call.
func (s *CrashServer) InStep() error { return s.asAdmin(inStep) }

// Alone lets commits no longer wait for a standby.
func (s *CrashServer) Alone() error {
	return s.asAdmin(func(ctx context.Context, conn *sql.Conn) error { return synchronous(ctx, conn, "") })
}

// Promote makes a standby a primary without a standby. It first replays all the log that it has.
func (s *CrashServer) Promote() error {
	return s.asAdmin(func(ctx context.Context, conn *sql.Conn) error {
		if err := synchronous(ctx, conn, ""); err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, `SELECT pg_promote(false)`); err != nil {
			return err
		}
		return untilTrue(ctx, conn, `SELECT NOT pg_is_in_recovery()`)
	})
}

// waitingCommit returns once a commit waits for a standby that is not there yet. The setting alone does not show
// that: the checkpointer tells the sessions of it. The channel says how that commit ended.
func (s *CrashServer) waitingCommit(ctx context.Context, conn *sql.Conn) (<-chan error, error) {
	for {
		pid, ended := make(chan int, 1), make(chan error, 1)
		go func() {
			defer close(pid)
			ended <- withConn(ctx, s.admin, func(own *sql.Conn) error {
				var n int
				if err := own.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&n); err != nil {
					return err
				}
				pid <- n
				_, err := own.ExecContext(ctx, `SELECT pg_logical_emit_message(true, 'standby', '')`)
				return err
			})
		}()
		n := <-pid
		for waits := false; len(ended) == 0; {
			err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep')`, n).Scan(&waits)
			if err != nil || waits {
				return ended, err
			}
		}
		if err := <-ended; err != nil {
			return nil, err
		}
	}
}

// synchronous sets the synchronous standby. It commits nothing: a commit could wait for it.
func synchronous(ctx context.Context, conn *sql.Conn, name string) error {
	for _, q := range []string{`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`, `SELECT pg_reload_conf()`} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return untilTrue(ctx, conn, `SELECT current_setting('synchronous_standby_names') = '`+name+`'`)
}

func inStep(ctx context.Context, conn *sql.Conn) error {
	var lsn string
	if err := conn.QueryRowContext(ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&lsn); err != nil {
		return err
	}
	return untilTrue(ctx, conn, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming' AND flush_lsn >= '`+lsn+`')`)
}

// untilTrue waits until a query returns true.
func untilTrue(ctx context.Context, conn *sql.Conn, query string) error {
	for is := false; ; time.Sleep(5 * time.Millisecond) {
		if err := conn.QueryRowContext(ctx, query).Scan(&is); err != nil {
			return fmt.Errorf("%s, now %s: %w", query, strconv.FormatBool(is), err)
		}
		if is {
			return nil
		}
	}
}

// asAdmin runs f on a connection of its own, for startTimeout at most.
func (s *CrashServer) asAdmin(f func(context.Context, *sql.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return withConn(ctx, s.admin, func(conn *sql.Conn) error { return f(ctx, conn) })
}

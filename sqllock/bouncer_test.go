package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// bouncer is the program, as the package pgbouncer of Debian and Ubuntu has it.
func bouncer(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err == nil {
		return path
	}
	if path = "/usr/sbin/pgbouncer"; os.Getenv("HOLDFAST_TEST_REQUIRE_PGBOUNCER") != "" {
		if _, err := os.Stat(path); err != nil {
			tb.Fatal("HOLDFAST_TEST_REQUIRE_PGBOUNCER is set and pgbouncer was not found: apt-get install pgbouncer")
		}
	}
	if _, err := os.Stat(path); err != nil {
		tb.Skip("pgbouncer was not found, so nothing was tested behind it: apt-get install pgbouncer")
	}
	return path
}

// behindBouncer starts PgBouncer in transaction mode before the database of a
// URL, and returns the URL of that. Few connections to the server serve many, so
// that each transaction of a client meets another session.
func behindBouncer(tb testing.TB, dsn, mode string) string {
	tb.Helper()
	program := bouncer(tb)
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal("not a URL")
	}
	password, _ := u.User.Password()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listen.Addr().String())
	_ = listen.Close()
	dir, err := os.MkdirTemp("", "bouncer") //nolint:usetesting // another user must get in there
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	config := fmt.Sprintf(`[databases]
test = host=%s port=%s dbname=%s user=%s password='%s' connect_query='SET search_path TO %s'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 12
max_client_conn = 1000
log_connections = 0
log_disconnections = 0
`, u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username(), password, u.Query().Get("search_path"), port)
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o644), os.Chmod(dir, 0o755)); err != nil {
		tb.Fatal(err)
	}
	args := []string{"-q", file}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...) // it refuses to be root
	}
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program, args...)
	said := new(strings.Builder)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			tb.Fatalf("pgbouncer does not answer: %v", err)
		}
	}
	return "postgres://someone@127.0.0.1:" + port + "/test?sslmode=disable&default_query_exec_mode=" + mode
}

// bounced is a handle whose pools are behind PgBouncer.
func bounced[Tx any](h conformance.Handle[Tx], mode string) conformance.Handle[Tx] {
	h = conformance.Only(h, dbtest.Postgres)
	open := h.Open
	h.Name += " behind PgBouncer"
	h.Open = func(tb testing.TB, dsn string, opts ...holdfast.Option) conformance.Pool[Tx] {
		tb.Helper()
		return open(tb, behindBouncer(tb, dsn, mode), opts...)
	}
	return h
}

func TestPgBouncerRowLocksSimpleProtocol(t *testing.T) {
	rowLocks(t, bounced(conformance.SQL(), "simple_protocol"))
}

func TestPgBouncerRowLocksPgxExec(t *testing.T) {
	rowLocks(t, bounced(conformance.Pgx(), "exec"))
}

// TestPgBouncerLeases: two processes take turns under one key, and write under
// its guard; each term is the only one, whichever session its statements meet.
func TestPgBouncerLeases(t *testing.T) {
	t.Parallel()
	bouncedLeases[*sql.Tx](t, bounced(conformance.SQL(), "exec"))
	bouncedLeases[pgx.Tx](t, bounced(conformance.Pgx(), "simple_protocol"))
}

func bouncedLeases[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	conformance.Run(t, h, func(e *conformance.Env[Tx]) {
		lockers := []*sqllock.Locker[Tx]{e.Locker(), e.Locker()}
		e.Must(`CREATE TABLE counter (n INT NOT NULL)`)
		e.Must(`INSERT INTO counter VALUES (0)`)
		var all sync.WaitGroup
		for i := range 24 {
			l := lockers[i%2]
			all.Go(func() {
				lease, err := l.Acquire(e.Ctx, "k")
				if err != nil {
					e.Error(err)
					return
				}
				err = e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx Tx) error {
					if err := l.Guard(ctx, tx, lease.Term()); err != nil {
						return err
					}
					_, err := e.Exec(ctx, tx, `UPDATE counter SET n = n + 1`)
					return err
				})
				if err := errors.Join(err, lease.Release(e.Ctx)); err != nil {
					e.Error(err)
				}
				if err := l.Guard(e.Ctx, *new(Tx), lease.Term()); !errors.Is(err, holdfast.ErrNoTx) {
					e.Errorf("without a transaction: %v", err)
				}
			})
		}
		all.Wait()
		if n := e.Int(`SELECT n FROM counter`); n != 24 {
			e.Errorf("%d of 24 guarded writes are there", n)
		}
	})
}

func TestPgBouncerHold(t *testing.T) {
	t.Parallel()
	conformance.Hold(t, bounced[*sql.Tx](conformance.SQL(), "simple_protocol"))
	conformance.Hold(t, bounced[pgx.Tx](conformance.Pgx(), "exec"))
}

// TestPgBouncerBell: LISTEN does not outlive its transaction there and nobody
// says so. The bell is rung as a test, is not heard, and is not trusted: who
// waits goes on looking, and gets the lock.
func TestPgBouncerBell(t *testing.T) {
	t.Parallel()
	count := &counter{n: map[string]int{}}
	conformance.Run(t, bounced(conformance.Pgx(), "exec"), func(e *conformance.Env[pgx.Tx]) {
		if e.Engine != dbtest.Postgres {
			return
		}
		var lockers []*sqllock.Locker[pgx.Tx]
		for range 2 {
			l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
			if err != nil {
				e.Fatal(err)
			}
			e.Cleanup(func() { _ = l.Close(context.Background()) })
			lockers = append(lockers, l)
		}
		for range 2 {
			lease, err := lockers[0].Acquire(e.Ctx, "k")
			if err != nil {
				e.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				next, err := lockers[1].Acquire(e.Ctx, "k")
				if err == nil {
					err = next.Release(e.Ctx)
				}
				got <- err
			}()
			time.Sleep(3 * time.Second) // beyond the bell's test
			before := count.of("locks.waits")
			time.Sleep(time.Second)
			if n := count.of("locks.waits") - before; n < 5 {
				e.Errorf("it looked %d times in a second: a bell that is not heard is trusted", n)
			}
			if err := errors.Join(lease.Release(e.Ctx), <-got); err != nil {
				e.Error(err)
			}
		}
	}, holdfast.WithObserver(count.observe))
}

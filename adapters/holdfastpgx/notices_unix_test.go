//go:build unix

package holdfastpgx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestCommitWithoutItsStandbyIsUnknown cancels the wait for a synchronous standby. The server
// then answers COMMIT with success and a warning. The naive form treats that as committed.
func TestCommitWithoutItsStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	ctx, dsn, admin := withoutStandby(t)
	for _, watched := range []bool{false, true} {
		config, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if watched {
			holdfastpgx.WatchNotices(config.ConnConfig)
		}
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		db, err := holdfastpgx.Open(ctx, pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			done <- db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `INSERT INTO effects VALUES ($1)`, fmt.Sprint(watched))
				return err
			})
		}()
		cancelSyncWait(ctx, t, admin)
		err = <-done
		if watched != errors.Is(err, holdfast.ErrUnknown) || !watched && err != nil {
			t.Errorf("watched %v: got %v", watched, err)
		}
		pool.Close()
	}
}

// TestStatementWithoutItsStandby cancels the wait of a statement that commits itself, and leaves the mark of a
// commit that was not Holdfast's: another commit on that connection is none of its business.
func TestStatementWithoutItsStandby(t *testing.T) {
	t.Parallel()
	ctx, dsn, admin := withoutStandby(t)
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	holdfastpgx.WatchNotices(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	db, err := holdfastpgx.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	access := access.Of(db)
	const insert = `INSERT INTO effects VALUES ('x') RETURNING k`
	for how, write := range map[string]func(q core.Querier) error{
		"exec": func(q core.Querier) error {
			_, err := q.Exec(ctx, insert)
			return err
		},
		"query": func(q core.Querier) error {
			rows, err := q.Query(ctx, insert)
			if err != nil {
				return err
			}
			for rows.Next() {
				continue
			}
			return rows.Close()
		},
		"a row": func(q core.Querier) error {
			var k string
			_, err := core.Stmt{Name: "write", Text: insert}.QueryRow(ctx, q, []any{&k})
			return err
		},
	} {
		for where, run := range map[string]func(func(q core.Querier) error) error{
			"the pool": func(f func(q core.Querier) error) error { return f(access.Pool) },
			"a connection": func(f func(q core.Querier) error) error {
				return access.OnConn(ctx, "", f)
			},
		} {
			done := make(chan error, 1)
			go func() { done <- run(write) }()
			cancelSyncWait(ctx, t, admin)
			if err := <-done; err == nil {
				t.Errorf("%s on %s counts as done", how, where)
			}
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := pool.Exec(ctx, insert)
		done <- err
	}()
	cancelSyncWait(ctx, t, admin)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := db.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SET LOCAL synchronous_commit = local; INSERT INTO effects VALUES ('y')`)
		return err
	}); err != nil {
		t.Errorf("a commit on the connection of another: %v", err)
	}
}

// TestConnectorWithoutStandby cancels the wait of a transaction that ends without a last statement of Holdfast's, and that of a
// commit of the program's own, whose mark is none of the next one's business.
func TestConnectorWithoutStandby(t *testing.T) {
	t.Parallel()
	ctx, dsn, admin := withoutStandby(t)
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	holdfastpgx.WatchNotices(config)
	pool := sql.OpenDB(holdfastpgx.Connector(stdlib.GetConnector(*config)))
	defer func() { _ = pool.Close() }()
	pool.SetMaxOpenConns(1)
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	first := core.Bound{Stmt: core.Stmt{Name: "first", Text: `INSERT INTO effects VALUES ($1)`}, Args: []any{"first"}}
	transact := func(setup string) error {
		return access.Of(db).Attempt(ctx, core.TxOptions{}, &first, func(ctx context.Context, tx *sql.Tx, _ core.Querier, _ core.Reply) error {
			_, err := tx.ExecContext(ctx, setup)
			return err
		})
	}
	done := make(chan error, 1)
	go func() { done <- transact(`SELECT 1`) }()
	cancelSyncWait(ctx, t, admin)
	if err := <-done; !errors.Is(err, holdfast.ErrUnknown) {
		t.Errorf("a commit without its standby: %v", err)
	}
	go func() {
		_, err := pool.ExecContext(ctx, `INSERT INTO effects VALUES ('own')`)
		done <- err
	}()
	cancelSyncWait(ctx, t, admin)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := transact(`SET LOCAL synchronous_commit = local`); err != nil {
		t.Errorf("a commit on the connection of another: %v", err)
	}
}

// withoutStandby starts a server whose synchronous standby never comes. admin does not wait for it.
func withoutStandby(t *testing.T) (ctx context.Context, dsn string, admin *pgx.Conn) {
	t.Helper()
	dsn = privateServer(t, "-c", "synchronous_standby_names=nobody")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	admin, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close(context.WithoutCancel(ctx)) })
	if _, err := admin.Exec(ctx, `SET synchronous_commit = local; CREATE TABLE effects (k text)`); err != nil {
		t.Fatal(err)
	}
	return ctx, dsn, admin
}

func cancelSyncWait(ctx context.Context, t *testing.T, admin *pgx.Conn) {
	t.Helper()
	for {
		var n int
		err := admin.QueryRow(ctx, `SELECT count(*) FROM (SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND pid <> $1) c`,
			admin.PgConn().PID()).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// privateServer starts a PostgreSQL server for this test only, because the setting applies to
// the whole server.
func privateServer(t *testing.T, args ...string) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("no PostgreSQL binaries on this machine: the servers in containers cannot be given this setting")
	}
	bin := filepath.Dir(slices.Max(found))
	dir, err := os.MkdirTemp("", "holdfast-sync") //nolint:usetesting // the other user may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = unprivileged(t, dir)
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	server := run("postgres", append([]string{"-D", data, "-p", port, "-k", dir, "-c", "listen_addresses=127.0.0.1"}, args...)...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	dsn := "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"
	for end := time.Now().Add(dbtest.Hang); ; time.Sleep(50 * time.Millisecond) {
		c, err := pgx.Connect(t.Context(), dsn)
		if err == nil {
			_ = c.Close(t.Context())
			return dsn
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// unprivileged returns the attributes to run PostgreSQL as another user: it refuses to run as
// root.
func unprivileged(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

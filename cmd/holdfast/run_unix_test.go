//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

// shop is a database with Holdfast's tables, and a folder for what commands write.
type shop struct {
	*testing.T

	url string
	dir string
}

// onShops runs f on the engines that the tests use.
func onShops(t *testing.T, f func(s shop)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) { f(newShop(t, e)) })
}

func newShop(t *testing.T, e dbtest.Engine) shop {
	t.Helper()
	url := dbtest.DSN(t, e)
	if err := migrations.Up(t.Context(), dbtest.OpenSQL(t, url)); err != nil {
		t.Fatal(err)
	}
	return shop{t, url, t.TempDir()}
}

// run runs the command in this process.
func (s shop) run(args ...string) (code int, stdout, stderr string) {
	s.Helper()
	return command(s.T, append([]string{"-dsn", s.url}, args...)...)
}

// ends runs the command in this process and checks its status and its output.
func (s shop) ends(status int, out string, args ...string) {
	s.Helper()
	if code, stdout, stderr := s.run(args...); code != status || stdout != out {
		s.Errorf("%v: status %d, want %d; %q, want %q; %s", args, code, status, stdout, out, stderr)
	}
}

// file is the path of a file that commands write.
func (s shop) file(name string) string { return filepath.Join(s.dir, name) }

// lines reads what commands wrote.
func (s shop) lines(name string) []string {
	s.Helper()
	text, err := os.ReadFile(s.file(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Fatal(err)
	}
	return strings.Fields(string(text))
}

// line waits for the n-th line that commands write, counted from 1.
func (s shop) line(name string, n int) (line string) {
	s.Helper()
	s.eventually(fmt.Sprintf("line %d of %s", n, name), func() bool {
		lines := s.lines(name)
		if len(lines) >= n {
			line = lines[n-1]
		}
		return line != ""
	})
	return line
}

func (s shop) eventually(what string, ok func() bool) {
	s.Helper()
	dbtest.Eventually(s.T, what, ok)
}

// sleeps is a command that writes its token and its process, and then lasts until it is ended. The
// line is written at once.
func (s shop) sleeps(name string) []string {
	return []string{"--", "sh", "-c", `echo "$HOLDFAST_TOKEN:$$" >> "$0"; exec sleep 1000`, s.file(name)}
}

// says is a command that writes its token into a file.
func (s shop) says(name string) []string {
	return []string{"--", "sh", "-c", `echo "$HOLDFAST_TOKEN:$$" >> "$0"`, s.file(name)}
}

// held returns the token and the process of a line that a command wrote.
func (s shop) held(line string) (token, pid int) {
	s.Helper()
	before, after, _ := strings.Cut(line, ":")
	token, err := strconv.Atoi(before)
	if err == nil {
		pid, err = strconv.Atoi(after)
	}
	if err != nil {
		s.Fatal(err)
	}
	return token, pid
}

// process is a holdfast in its own process and session.
type process struct {
	shop

	*exec.Cmd
	said   strings.Builder
	exited chan struct{}
}

func (s shop) start(args ...string) *process {
	s.Helper()
	return s.startAs(&syscall.SysProcAttr{Setsid: true}, nil, args...)
}

func (s shop) startAs(attr *syscall.SysProcAttr, tty *os.File, args ...string) *process {
	s.Helper()
	p := &process{shop: s, Cmd: exec.CommandContext(s.Context(), os.Args[0], args...), exited: make(chan struct{})}
	p.Env = append(os.Environ(), asCommand+"=1", dsnVariable+"="+s.url)
	p.Stderr, p.SysProcAttr = &p.said, attr
	if tty != nil {
		p.Stdin, p.Stdout, p.Stderr = tty, tty, tty
	}
	if err := p.Start(); err != nil {
		s.Fatal(err)
	}
	go func() {
		_ = p.Wait()
		close(p.exited)
	}()
	s.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.exited
	})
	return p
}

// guard returns a transaction that is guarded by a token: by Holdfast's SQL function, where there is one.
func (s shop) guard() func(key string, token int) error {
	s.Helper()
	pool := dbtest.OpenSQL(s.T, s.url)
	db, err := holdfastsql.Open(s.Context(), pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		s.Fatal(err)
	}
	if strings.HasPrefix(s.url, "sqlite") {
		locks, err := sqllock.New(s.Context(), db)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = locks.Close(context.WithoutCancel(s.Context())) })
		return func(key string, token int) error {
			return db.InTx(s.Context(), func(ctx context.Context, tx *sql.Tx) error {
				return locks.Guard(ctx, tx, locks.Term(key, int64(token)))
			})
		}
	}
	if err := migrations.FunctionsUp(s.Context(), pool); err != nil {
		s.Fatal(err)
	}
	query := `CALL holdfast_guard('', ?, ?)`
	if strings.HasPrefix(s.url, "postgres") {
		query = `SELECT holdfast_guard('', $1::text, $2)`
	}
	return func(key string, token int) error {
		return db.InTx(s.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, query, key, token)
			return err
		})
	}
}

// shortTTL is the TTL of a holdfast that is stopped past it.
const shortTTL = time.Second

// frozen starts holdfast for a new key and stops it while its command runs. On a busy machine it
// may lose its lease before; then it is started again.
func (s shop) frozen(args ...string) (p *process, key string, token, pid int) {
	s.Helper()
	for {
		key = rand.Text()
		p = s.start(slices.Concat(args[:1], []string{key, "--ttl", shortTTL.String()}, args[1:], s.first(key))...)
		s.eventually("the command runs", func() bool { return len(s.lines(key)) > 0 || p.over() })
		if lines := s.lines(key); len(lines) > 0 {
			token, pid = s.held(lines[0])
			if p.freeze() && alive(pid) {
				return p, key, token, pid
			}
		}
		_ = p.Process.Kill()
		<-p.exited
	}
}

// first is a command that writes a line, and lasts if it is the first.
func (s shop) first(name string) []string {
	return []string{"--", "sh", "-c", `echo "$HOLDFAST_TOKEN:$$" >> "$0"; [ $(wc -l < "$0") -gt 1 ] || exec sleep 1000`, s.file(name)}
}

// expire ends all leases in the database, as their TTL does.
func (s shop) expire() {
	s.Helper()
	pool := dbtest.OpenSQL(s.T, s.url)
	for _, q := range []string{`UPDATE holdfast_locks SET expires_at = 1 WHERE expires_at > 1`, `UPDATE holdfast_staged SET due_at = 1 WHERE due_at > 1`} {
		if _, err := pool.ExecContext(s.Context(), q); err != nil {
			s.Fatal(err)
		}
	}
}

// freeze stops the process at a moment when it holds no lock of the database. It returns false if the
// process has ended.
func (p *process) freeze() bool {
	p.Helper()
	pool := dbtest.OpenSQL(p.T, p.url)
	free := func() bool {
		for _, q := range p.probes() {
			tx, err := pool.BeginTx(p.Context(), nil)
			if err != nil {
				p.Fatal(err)
			}
			_, err = tx.ExecContext(p.Context(), q)
			_ = tx.Rollback()
			if err != nil {
				_ = p.Process.Signal(syscall.SIGCONT)
				return false
			}
		}
		return true
	}
	p.eventually("it is stopped between two transactions", func() bool {
		return dbtest.Stop(p.Process) != nil || free()
	})
	return !p.over()
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// probes are statements that fail while a transaction holds a lock.
func (s shop) probes() []string {
	if strings.HasPrefix(s.url, "sqlite") {
		return []string{`UPDATE holdfast_locks SET token = token`}
	}
	return []string{`SELECT token FROM holdfast_locks FOR UPDATE NOWAIT`, `SELECT token FROM holdfast_staged FOR UPDATE NOWAIT`}
}

// opened waits until a process has opened its SQLite database: it has received signals since
// before.
func (p *process) opened() {
	p.Helper()
	path := strings.TrimPrefix(p.url, "sqlite://")
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		p.Skip("what a process has open is read in /proc")
	}
	p.eventually("the database is open", func() bool {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Process.Pid))
		return slices.ContainsFunc(files, func(f string) bool {
			is, _ := os.Readlink(f)
			return is == path
		})
	})
}

func (p *process) signal(sig os.Signal) {
	p.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.Error(err)
	}
}

// status waits for the end of the process.
func (p *process) status() int {
	p.Helper()
	p.eventually("holdfast ends", p.over)
	if ws, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -int(ws.Signal())
	}
	return p.ProcessState.ExitCode()
}

func (p *process) endsWith(status int) {
	p.Helper()
	if got := p.status(); got != status {
		p.Errorf("%v: status %d, want %d: %s", p.Args[1:], got, status, p.said.String())
	}
}

// alive reports whether a process exists and is not a zombie.
func alive(pid int) bool {
	if err := unix.Kill(pid, 0); err != nil {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return errors.Is(err, os.ErrNotExist) && unix.Kill(pid, 0) == nil // there is no /proc
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(state, "Z")
}

func (s shop) gone(pid int) {
	s.Helper()
	s.eventually("the command is gone", func() bool { return !alive(pid) })
}

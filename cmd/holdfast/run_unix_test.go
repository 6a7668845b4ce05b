//go:build unix

package main

import (
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

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
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

// process is a holdfast in a process and a session of its own.
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

// freeze stops the process at a moment when it holds no lock of the database.
func (p *process) freeze() {
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
				p.signal(syscall.SIGCONT)
				return false
			}
		}
		return true
	}
	p.eventually("it is stopped between two transactions", func() bool {
		p.signal(syscall.SIGSTOP)
		return free()
	})
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
	p.eventually("holdfast ends", func() bool {
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	})
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

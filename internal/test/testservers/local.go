//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// startAttempts is greater than one because another process may take a free port before the
	// server listens on it.
	startAttempts = 3
	stopTimeout   = 10 * time.Second
	logTail       = 600 // bytes of a server's log that an error shows
)

// localSource runs an engine from a binary of this machine, in a folder below folder.
func localSource(folder string) source {
	return func(ctx context.Context, e engine) (*server, error) {
		find, run := mysqlBinary, runMySQL
		if e == postgres {
			find, run = postgresBinary, runPostgres
		}
		binary, err := find(ctx, e, folder)
		if err != nil {
			return nil, err
		}
		s, err := run(ctx, e, folder, binary)
		if err != nil {
			return nil, &brokenError{binary + " does not work", err}
		}
		s.how = "local server"
		return s, nil
	}
}

// account returns the account for a server: nil, which means the current one, unless that is
// root, which the servers refuse; then an unprivileged one.
func account(names ...string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no other account
	}
	for _, name := range append(names, "nobody") {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("no account but root to run it as")
}

// give makes the account the owner of a file or folder.
func give(path string, as *syscall.Credential) error {
	if as == nil {
		return nil
	}
	if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
		return fmt.Errorf("give the server its files: %w", err)
	}
	return nil
}

// writeFor writes a file that only the account can read.
func writeFor(as *syscall.Credential, path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write for the server: %w", err)
	}
	return give(path, as)
}

// ownFolder makes a folder that belongs to the account.
func ownFolder(parent, pattern string, as *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", fmt.Errorf("no folder for the server: %w", err)
	}
	return dir, give(dir, as)
}

// freePort returns a free port on the loopback interface.
func freePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("no free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return "", fmt.Errorf("no free port: %w", err)
	}
	return port, nil
}

// output runs a short command as the account and returns its output; an error contains the end
// of that output.
func output(ctx context.Context, as *syscall.Credential, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.SysProcAttr = dir, ownGroup(as)
	cmd.Env = serverEnv(dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, tail(string(out)))
	}
	return string(out), nil
}

// serverEnv returns the environment of a server. It contains no variable of this process that
// could redirect the server, and it places temporary files in a folder that is removed.
func serverEnv(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
}

// process is a running server.
type process struct {
	cmd     *exec.Cmd
	died    chan struct{} // closed once it has ended
	logFile string
}

// start starts a server in dir as the account.
func start(as *syscall.Credential, dir, name string, args ...string) (*process, error) {
	logFile, err := os.CreateTemp(filepath.Dir(dir), filepath.Base(dir)+"-log-")
	if err != nil {
		return nil, fmt.Errorf("no log for the server: %w", err)
	}
	defer func() { _ = logFile.Close() }()
	cmd := exec.Command(name, args...) //nolint:noctx // a server's binary; it outlives the start, stop ends it
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, serverEnv(dir), ownGroup(as)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	p := &process{cmd: cmd, died: make(chan struct{}), logFile: logFile.Name()}
	go func() {
		defer close(p.died)
		_ = cmd.Wait()
	}()
	return p, nil
}

// stop asks the process to end with sig, and kills it if it does not. It needs no clean
// shutdown: the data is deleted next.
func (p *process) stop(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.died:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.died
	}
}

// log returns the end of the server's output.
func (p *process) log() string {
	text, _ := os.ReadFile(p.logFile)
	return tail(string(text))
}

// listen starts a server, with a new port for each attempt, until it answers.
func listen(ctx context.Context, e engine, sig syscall.Signal, dsn func(port string) string,
	run func(port string) (*process, error),
) (*server, error) {
	var failure error
	for range startAttempts {
		port, err := freePort(ctx)
		if err != nil {
			return nil, err
		}
		p, err := run(port)
		if err != nil {
			return nil, err
		}
		ready, cancel := context.WithTimeout(ctx, readyTimeout)
		err = waitReady(ready, e, dsn(port), p.died)
		cancel()
		if err == nil {
			return &server{engine: e, dsn: dsn(port), stop: func() { p.stop(sig) }}, nil
		}
		p.stop(sig)
		failure = fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), err, p.log())
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failure
}

// findBinaries lists the executables called name in PATH and in the folders that match the
// patterns, the highest version first.
func findBinaries(name string, patterns ...string) []string {
	var found []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		found = appendExecutable(found, filepath.Join(dir, name))
	}
	for _, pattern := range patterns {
		dirs, _ := filepath.Glob(pattern) // the patterns are constants and well-formed
		slices.SortFunc(dirs, func(a, b string) int { return compareVersions(b, a) })
		for _, dir := range dirs {
			found = appendExecutable(found, filepath.Join(dir, name))
		}
	}
	return found
}

// appendExecutable appends the path with its symbolic links resolved, if it is an executable.
func appendExecutable(found []string, path string) []string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil || slices.Contains(found, path) {
		return found
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return found
	}
	return append(found, path)
}

// compareVersions orders paths such that /usr/lib/postgresql/9/bin comes before
// /usr/lib/postgresql/18/bin.
func compareVersions(a, b string) int {
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	as, bs := strings.FieldsFunc(a, notDigit), strings.FieldsFunc(b, notDigit)
	return slices.CompareFunc(as, bs, func(x, y string) int {
		m, _ := strconv.Atoi(x)
		n, _ := strconv.Atoi(y)
		return m - n
	})
}

// tail returns the end of a log as one line.
func tail(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > logTail {
		text = "... " + text[len(text)-logTail:]
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' }), " | ")
}

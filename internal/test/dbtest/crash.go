//go:build unix

package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/dsn"
)

// startTimeout bounds the time from a server's start to its first answer: a recovery on a busy
// machine can be slow.
const startTimeout = 2 * time.Minute

// CrashServer is a separate server that a test may kill with SIGKILL, with all of its processes
// at once, and start again on the remaining data. It is durable: it answers a commit after the
// commit is in its log.
type CrashServer struct {
	URL string // of an empty database
	How string // a description of the server, for a log
	// InDocker: files of this machine, such as those that env names, are not there.
	InDocker bool

	engine Engine
	admin  string // the URL of a database that always exists
	launch func() (*exec.Cmd, error)
	kill   func(pid int)
	log    string
	disk   *disk               // of its own; nil if it has none
	pid    func() (int, error) // of the program in Docker
	node   *PostgresNode       // nil for the others
	env    []string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	by    time.Duration // how far its clock was moved
}

// NewCrashServer starts a server of engine from the binaries of this machine, with env added to
// its environment. MySQL runs in Docker, and so does MariaDB where it has no binaries. The error names what is missing: a program, an
// account or Docker. The server is removed when the test ends.
func NewCrashServer(tb testing.TB, e Engine, env ...string) (*CrashServer, error) {
	tb.Helper()
	if !e.available() {
		return nil, errors.New(e.missing())
	}
	prepare := map[Engine]func(testing.TB, []string) (*CrashServer, error){
		Postgres: crashPostgres, MariaDB: crashMariaDB, MySQL: crashMySQL,
	}[e]
	if prepare == nil {
		return nil, errors.New("it has no server")
	}
	s, err := prepare(tb, env)
	if err != nil {
		return nil, err
	}
	s.engine = e
	tb.Cleanup(func() { _ = s.Kill() })
	if err := s.Start(); err != nil {
		return nil, err
	}
	if e != Postgres {
		err := runAdmin(s.admin, statements("CREATE DATABASE own CHARACTER SET utf8mb4"))
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Kill ends every process of the server with SIGKILL and waits until they have ended.
func (s *CrashServer) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	s.kill(s.cmd.Process.Pid)
	select {
	case <-s.ended:
		s.cmd = nil
		return nil
	case <-time.After(startTimeout):
		return errors.New("the server does not end")
	}
}

// FillDisk takes all space of the server's disk, or gives it back. Where it has no disk of its own, each
// write fails that would be beyond the first 64 KiB of a file: PostgreSQL takes that for a full disk, and
// ends when it cannot write its log. MySQL and MariaDB may wait for space, for up to a minute after there
// is some. So call Start afterwards. See CanFillDisk.
func (s *CrashServer) FillDisk(full bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disk != nil {
		return s.disk.fill(full)
	}
	if s.cmd == nil {
		return nil
	}
	pid := s.cmd.Process.Pid
	most := int64(-1)
	if full {
		most = 64 << 10
	}
	for _, one := range append([]int{pid}, children(pid)...) { // those that it starts inherit it
		if err := LimitFiles(one, most); err != nil {
			return err
		}
	}
	return nil
}

// CanFillDisk reports whether FillDisk works: MySQL and MariaDB need a disk of their own, because they
// end with the signal (SIGXFSZ) that PostgreSQL ignores.
func (s *CrashServer) CanFillDisk() bool {
	return s.disk != nil || s.engine == Postgres && CanLimitFiles()
}

// CanLimitFiles reports whether LimitFiles works here.
func CanLimitFiles() bool {
	_, err := exec.LookPath("prlimit")
	return err == nil
}

// LimitFiles makes the writes of a process fail beyond the first bytes of a file; below 0 it ends
// that. A process that has ended is no error.
func LimitFiles(pid int, most int64) error {
	size := "unlimited"
	if most >= 0 {
		size = strconv.FormatInt(most, 10)
	}
	cmd := exec.Command("prlimit", "--pid", strconv.Itoa(pid), "--fsize="+size+":") //nolint:noctx // short
	var own syscall.Stat_t
	if syscall.Stat(fmt.Sprintf("/proc/%d", pid), &own) == nil && int(own.Uid) != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: own.Uid, Gid: own.Gid}} // which may
	}
	said, err := cmd.CombinedOutput()
	if err != nil && syscall.Kill(pid, 0) == nil {
		return fmt.Errorf("prlimit: %w: %s", err, said)
	}
	return nil
}

// killAll kills a process and all processes that it has started.
func killAll(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // otherwise it could start others now
	for _, child := range append(children(pid), pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	left, _ := filepath.Glob(fmt.Sprintf("/dev/shm/*faketime_*_%d", pid)) // left by libfaketime
	for _, file := range left {
		_ = os.Remove(file)
	}
}

// Start starts the server, and waits until it answers.
func (s *CrashServer) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err := s.run(); err != nil {
			return err
		}
		if s.by != 0 {
			if err = s.moveClock(); err != nil {
				continue
			}
		}
		if err = s.answers(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the server does not answer: %w\n%s", err, s.said())
}

// said returns the end of what the server has written to its log.
func (s *CrashServer) said() []byte {
	text, _ := os.ReadFile(s.log)
	return text[max(0, len(text)-4000):]
}

// run starts the program unless it runs. The program exits while a process of its former run
// exists.
func (s *CrashServer) run() error {
	if s.cmd != nil {
		select {
		case <-s.ended:
		default:
			return nil
		}
	}
	cmd, err := s.launch()
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it was killed
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	return nil
}

func (s *CrashServer) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	db, _, err := dsn.Open(s.admin)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	var one int
	return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
}

// children returns the processes that a process has started, and those that these have, in one pass over
// all processes: a server has a hundred.
func children(pid int) (all []int) {
	of := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		// The name, in parentheses, may contain any characters.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			of[parent] = append(of[parent], child)
		}
	}
	all = append(all, of[pid]...)
	for i := 0; i < len(all); i++ {
		all = append(all, of[all[i]]...)
	}
	return all
}

// program returns a function that starts a command as an account, with its output in a file.
func program(as *syscall.Credential, dir, log string, env []string, path string, args ...string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		cmd := exec.Command(path, args...) //nolint:noctx // it ends when it is killed
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
		out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer func() { _ = out.Close() }() // the server has its own copy
		cmd.Stdout, cmd.Stderr = out, out
		err = cmd.Start()
		return cmd, err
	}
}

func crashMariaDB(tb testing.TB, env []string) (*CrashServer, error) {
	server, install := Find("mariadbd"), Find("mariadb-install-db")
	as, err := accountOf("mysql", "nobody")
	if server == "" || install == "" {
		return crashMariaDBInDocker(tb)
	}
	if err != nil {
		return nil, err
	}
	dir, port := OwnFolder(tb, as), FreePort(tb)
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "log")
	RunAs(tb, as, dir, install, "--no-defaults", "--datadir="+data, "--tmpdir="+dir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--force")
	address := "mysql://root@tcp(127.0.0.1:" + port + ")/"
	return &CrashServer{
		URL: address + "own", admin: address + "mysql", log: log, kill: killAll, How: server,
		launch: program(as, dir, log, env, server, "--no-defaults", "--datadir="+data, "--tmpdir="+dir, "--bind-address=127.0.0.1", "--port="+port,
			"--socket=s", "--pid-file=pid", "--skip-name-resolve", "--skip-grant-tables", "--skip-networking=0", "--innodb-buffer-pool-size=32M"),
	}, nil
}

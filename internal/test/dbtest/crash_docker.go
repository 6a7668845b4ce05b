//go:build unix

package dbtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/vdso"
)

// crashMySQL runs MySQL in Docker: it cannot be installed beside MariaDB.
func crashMySQL(tb testing.TB, env []string) (*CrashServer, error) {
	return crashDocker(tb, "mysql:9.7", append(env, "MYSQL_ALLOW_EMPTY_PASSWORD=1"), "mysqld")
}

// crashDocker runs MySQL or MariaDB in Docker, with env in its environment.
func crashDocker(tb testing.TB, image string, env []string, server ...string) (*CrashServer, error) {
	docker, err := exec.LookPath("docker")
	if err == nil {
		err = exec.Command(docker, "info").Run() //nolint:noctx // short
	}
	if err != nil {
		return nil, fmt.Errorf("no Docker: %w", err)
	}
	port, name := FreePort(tb), newName()
	dir := OwnFolder(tb, nil)
	disk := newDisk(tb, docker, name, image)
	run := []string{
		"create", "--name", name, "--label", "holdfast=campaign", "--user", "mysql", "-p", "127.0.0.1:" + port + ":3306",
	}
	if disk != nil {
		run = append(run, "-v", disk.volume+":/var/lib/mysql")
	}
	for _, v := range env {
		run = append(run, "-e", v)
	}
	run = append(append(run, image), append(server, "--max-connections=500")...)
	if _, err := command(docker, run...); err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _, _ = command(docker, "rm", "-f", "-v", name) })
	address := "mysql://root@tcp(127.0.0.1:" + port + ")/"
	log := filepath.Join(dir, "log")
	pid := func() (int, error) { return pidInDocker(docker, name, server[0]) }
	return &CrashServer{
		URL: address + "own", admin: address + "mysql", log: log, How: image + " in Docker", InDocker: true, disk: disk, pid: pid,
		launch: program(nil, dir, log, nil, docker, "start", "-a", name), // ends with the server
		kill:   func(int) { _, _ = command(docker, "kill", "-s", "KILL", name) },
	}, nil
}

// pidInDocker returns the process that a container consists of, once it runs its program.
func pidInDocker(docker, name, program string) (pid int, err error) {
	said, err := command(docker, "inspect", "-f", "{{.State.Pid}}", name)
	if err != nil {
		return 0, err
	}
	if pid, err = strconv.Atoi(said); err != nil {
		return 0, err
	}
	is, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // not where Docker has a machine of its own
	if err == nil && strings.TrimSpace(string(is)) != program {
		err = fmt.Errorf("process %d is %q, not %s", pid, is, program)
	}
	return pid, err
}

// MoveClock sets the clock of a server in Docker to the machine's clock plus by, also when it starts
// again. A server that is down is no error. It needs the rights of root.
func (s *CrashServer) MoveClock(by time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by = by
	err := s.moveClock()
	if _, gone := s.pid(); gone != nil {
		return nil // Start moves it
	}
	return err
}

// CanMoveClock returns why MoveClock does not work here.
func (s *CrashServer) CanMoveClock() error {
	if s.pid == nil {
		return errors.New("it does not run in Docker")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moveClock()
}

func (s *CrashServer) moveClock() error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	return vdso.MoveOther(pid, s.by)
}

// A disk is a volume of a fixed size for a server in Docker. A second container keeps it while the server
// is down, and fills it.
type disk struct{ docker, volume, keeper string }

// newDisk makes a disk in memory for a container. It returns nil, with a line in the log, where Docker cannot.
func newDisk(tb testing.TB, docker, name, image string) *disk {
	tb.Helper()
	d := &disk{docker, name + "_disk", name + "_keeper"}
	tb.Cleanup(func() {
		_, _ = command(docker, "rm", "-f", d.keeper)
		_, _ = command(docker, "volume", "rm", "-f", d.volume)
	})
	_, err := command(docker, "volume", "create", "--label", "holdfast=campaign", "--driver", "local",
		"--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=size=2g,mode=0777", d.volume)
	if err == nil {
		_, err = command(docker, "run", "-d", "--name", d.keeper, "--label", "holdfast=campaign", "--user", "root", "--network", "none",
			"-v", d.volume+":/disk", "--entrypoint", "sleep", image, "infinity")
	}
	if err != nil {
		tb.Logf("%s has no disk of its own: %v", image, err)
		return nil
	}
	return d
}

// fill fills the disk, or removes what has filled it. What df says is free is taken at once, and then what
// is left.
func (d *disk) fill(full bool) error {
	do := "rm -f /disk/filler*"
	if full {
		do = `fallocate -l $(df --output=avail -k /disk | tail -1)k /disk/filler; dd if=/dev/zero of=/disk/filler2 bs=4k; test $(df --output=avail -k /disk | tail -1) -lt 512`
	}
	_, err := command(d.docker, "exec", d.keeper, "sh", "-c", do)
	return err
}

// command runs a short program, and returns what it says.
func command(program string, args ...string) (string, error) {
	said, err := exec.Command(program, args...).CombinedOutput() //nolint:noctx // short
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(said)), nil
}

var errNoBinaries = errors.New("no mariadbd and mariadb-install-db on this machine")

// crashMariaDBInDocker has a log of its changes, as MySQL has, and as any server with a replica.
func crashMariaDBInDocker(tb testing.TB) (*CrashServer, error) {
	s, err := crashDocker(tb, "mariadb:10.11", []string{"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD=1"}, "mariadbd", "--log-bin")
	if err != nil {
		return nil, fmt.Errorf("%w, and %w", errNoBinaries, err)
	}
	return s, nil
}

//go:build unix

package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// binaries are the programs that run a server; for a JAR, its file shows that it is installed.
// packages are the package names in Debian and Ubuntu; the first available one is used.
var (
	binaries = map[string]string{
		Redis: "redis-server", RedisDurable: "redis-server", Etcd: "etcd", ZooKeeper: zooKeeperJar,
	}
	packages = map[string][]string{
		Redis: {"redis-server"}, RedisDurable: {"redis-server"}, Etcd: {"etcd-server", "etcd"}, ZooKeeper: {"zookeeper"},
	}
)

// have finds the server. If it is missing, have installs it as root on a system with apt-get,
// unless HOLDFAST_TEST_INSTALL=0.
func have(ctx context.Context, name string, updated *sync.Once, logf func(string, ...any)) (string, error) {
	if path, err := exec.LookPath(binaries[name]); err == nil || isFile(binaries[name]) {
		return max(path, binaries[name]), nil
	}
	list := strings.Join(packages[name], " or ")
	if os.Getenv("HOLDFAST_TEST_INSTALL") == "0" {
		return "", fmt.Errorf("not on this machine, and HOLDFAST_TEST_INSTALL=0 (apt-get install %s)", list)
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("not on this machine, and only root on Debian or Ubuntu installs it (apt-get install %s)", list)
	}
	updated.Do(func() {
		if err := apt(ctx, "update"); err != nil {
			logf("%v", err)
		}
	})
	var err error
	for _, p := range packages[name] {
		logf("%s: installing %s with apt-get (HOLDFAST_TEST_INSTALL=0 forbids it)", name, p)
		if err = apt(ctx, "install", "--no-install-recommends", p); err == nil {
			break
		}
	}
	if err != nil {
		return "", err
	}
	if path, err := exec.LookPath(binaries[name]); err == nil || isFile(binaries[name]) {
		return max(path, binaries[name]), nil
	}
	return "", fmt.Errorf("%s brought no %s", list, binaries[name])
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// apt runs apt-get to its end. RUNLEVEL=1 keeps Debian from starting the installed server.
func apt(ctx context.Context, args ...string) error {
	args = append([]string{"-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"}, args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "apt-get", args...) //nolint:gosec // arguments of our own
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "RUNLEVEL=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %.200s", strings.Join(args[6:], " "), err, out)
	}
	return nil
}

//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// packages lists the packages with an engine's server, the preferred ones first. Packages named
// -core contain only the programs, so they start no server. PostgreSQL has no such package; its
// package may start a server, and testservers leaves that server alone.
var packages = map[engine][][]string{
	postgres: {{"postgresql"}},
	mysql:    {{"mysql-server-core"}, {"mysql-server-core-8.4"}, {"mysql-server-core-8.0"}},
	mariadb:  {{"mariadb-server-core", "mariadb-client-core"}, {"mariadb-server"}},
}

// installSource installs the distribution's package and then tries local.
func installSource(local source) source {
	var mu sync.Mutex // apt-get runs once at a time
	update := sync.OnceValue(func() error { return apt("update") })
	return func(ctx context.Context, e engine) (*server, error) {
		release, err := os.Open("/etc/os-release")
		if err != nil {
			return nil, errors.New("not Debian or Ubuntu")
		}
		defer func() { _ = release.Close() }()
		switch {
		case !isDebian(bufio.NewScanner(release)):
			return nil, errors.New("not Debian or Ubuntu")
		case os.Geteuid() != 0:
			return nil, errors.New("not root, so not installed")
		}
		if err := install(ctx, e, &mu, update); err != nil {
			return nil, err
		}
		s, err := local(ctx, e)
		if err != nil {
			return nil, err
		}
		s.how = "local server, installed with apt-get"
		return s, nil
	}
}

// install installs the first packages for e that the distribution offers.
func install(ctx context.Context, e engine, mu *sync.Mutex, update func() error) error {
	mu.Lock()
	defer mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	outdated := update()
	for _, names := range packages[e] {
		out, err := output(ctx, nil, os.TempDir(), "apt-cache", "policy", names[0])
		if err != nil || !hasCandidate(out) {
			continue
		}
		list := strings.Join(names, " ")
		logf("%s: installing %s with apt-get (HOLDFAST_TEST_INSTALL=0 forbids it)", e, list)
		if err := apt(append([]string{"install", "--no-install-recommends"}, names...)...); err != nil {
			logf("%s: %v", e, err)
			return fmt.Errorf("apt-get could not install %s", list)
		}
		return nil
	}
	if outdated != nil {
		logf("%v", outdated)
		return errors.New("apt-get update failed")
	}
	return errors.New("not packaged for this system")
}

// apt runs apt-get to its end: an interrupted apt-get would leave the machine in a state that
// its owner must repair.
func apt(args ...string) error {
	args = append([]string{"-qq", "-y", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"}, args...)
	cmd := exec.Command("apt-get", args...) //nolint:noctx // see above
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, tail(string(out)))
	}
	return nil
}

// hasCandidate reads the answer of apt-cache policy.
func hasCandidate(policy string) bool {
	for line := range strings.Lines(policy) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "Candidate:"); ok {
			return strings.TrimSpace(version) != "(none)"
		}
	}
	return false
}

// isDebian reads /etc/os-release.
func isDebian(release *bufio.Scanner) bool {
	for release.Scan() {
		name, value, _ := strings.Cut(release.Text(), "=")
		if name != "ID" && name != "ID_LIKE" {
			continue
		}
		ids := strings.Fields(strings.Trim(value, `"'`))
		if slices.Contains(ids, "debian") || slices.Contains(ids, "ubuntu") {
			return true
		}
	}
	return false
}

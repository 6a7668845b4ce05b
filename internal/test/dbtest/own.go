//go:build unix

package dbtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Account returns the account for a server. It returns nil unless the process runs as root,
// which servers refuse; then it returns the first of names that exists. The test is skipped if
// none exists.
func Account(tb testing.TB, names ...string) *syscall.Credential {
	tb.Helper()
	as, err := accountOf(names...)
	if err != nil {
		tb.Skip("capability \"own server\": " + err.Error())
	}
	return as
}

func accountOf(names ...string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("root without any of the accounts " + strings.Join(names, ", "))
}

// OwnFolder makes a folder that belongs to the account. It is removed when the test ends.
func OwnFolder(tb testing.TB, as *syscall.Credential) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "holdfast-own-") //nolint:usetesting // the account has to get in
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// RunAs runs a program and waits until it ends.
func RunAs(tb testing.TB, as *syscall.Credential, dir, program string, args ...string) {
	tb.Helper()
	if err := runAs(as, dir, program, args...); err != nil {
		tb.Fatal(err)
	}
}

func runAs(as *syscall.Credential, dir, program string, args ...string) error {
	cmd := exec.Command(program, args...) //nolint:noctx // a cleanup runs it, too
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	log, err := os.CreateTemp("", filepath.Base(program))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close(); _ = os.Remove(log.Name()) }()
	cmd.Stdout, cmd.Stderr = log, log // not a pipe: a server that the program starts inherits it
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s: %w\n%s", program, err, said)
	}
	return nil
}

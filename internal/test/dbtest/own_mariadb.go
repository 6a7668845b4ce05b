//go:build unix

package dbtest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// OwnMariaDB starts MariaDB from the binaries of this machine, with options, and returns the URL
// of an empty database. If binaries or a suitable account are missing, the test is skipped with
// that reason.
func OwnMariaDB(tb testing.TB, options ...string) string {
	tb.Helper()
	if !slices.Contains(Engines(), MariaDB) {
		tb.Skip("capability \"own server\": not where MariaDB is not tested")
	}
	server, install := Find("mariadbd"), Find("mariadb-install-db")
	if server == "" || install == "" {
		tb.Skip("capability \"own server\": no mariadbd and mariadb-install-db on this machine")
	}
	as := Account(tb, "mysql", "nobody")
	dir := OwnFolder(tb, as)
	data, port := filepath.Join(dir, "data"), FreePort(tb)
	RunAs(tb, as, dir, install, "--no-defaults", "--datadir="+data, "--tmpdir="+dir, "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--force")
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), server, append([]string{
		"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir, "--bind-address=127.0.0.1", "--port=" + port, "--socket=s", "--pid-file=pid",
		"--skip-name-resolve", "--skip-grant-tables", "--skip-networking=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M",
	}, options...)...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		cmd.Stderr = log
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	_ = log.Close() // the server has its own copy
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := "mysql://root@tcp(127.0.0.1:" + port + ")/"
	pool := OpenSQL(tb, address+"mysql")
	for end := time.Now().Add(Hang); ; time.Sleep(20 * time.Millisecond) {
		_, err := pool.ExecContext(tb.Context(), `CREATE DATABASE own`)
		if err == nil {
			return address + "own"
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(log.Name())
			tb.Fatalf("MariaDB does not answer: %v\n%s", err, said)
		}
	}
}

// Find returns the path of a program in PATH or in the usual folders of servers.
func Find(program string) string {
	for _, name := range []string{program, "/usr/sbin/" + program, "/usr/bin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

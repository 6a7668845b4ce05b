package dbtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bouncerProgram returns the path of PgBouncer, as the package pgbouncer of Debian and Ubuntu
// installs it.
func bouncerProgram(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err == nil {
		return path
	}
	if path = "/usr/sbin/pgbouncer"; os.Getenv("HOLDFAST_TEST_REQUIRE_PGBOUNCER") != "" {
		if _, err := os.Stat(path); err != nil {
			tb.Fatal("HOLDFAST_TEST_REQUIRE_PGBOUNCER is set and pgbouncer was not found: apt-get install pgbouncer")
		}
	}
	if _, err := os.Stat(path); err != nil {
		tb.Skip("pgbouncer was not found, so nothing was tested behind it: apt-get install pgbouncer")
	}
	return path
}

// BouncerPrepares reports whether PgBouncer knows prepared statements in transaction mode, from 1.21
// on.
func BouncerPrepares(tb testing.TB) bool {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), bouncerProgram(tb), "--version").Output()
	if err != nil {
		tb.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		tb.Fatalf("%q: %v", out, err)
	}
	return major > 1 || minor >= 21
}

// NeedsPreparingBouncer skips the test without such a PgBouncer.
func NeedsPreparingBouncer(tb testing.TB) {
	tb.Helper()
	if !BouncerPrepares(tb) {
		tb.Skip("this PgBouncer has no prepared statements in transaction mode: make matrix runs 1.24")
	}
}

// PgBouncer starts PgBouncer in front of the PostgreSQL database of a URL, in a pool mode
// (session, transaction), and returns its URL. Few connections to the server serve many clients,
// so in transaction mode each transaction of a client gets a different session. When the server
// does not answer, PgBouncer tries again after a second, not after 15. The test is skipped if the
// program is missing.
func PgBouncer(tb testing.TB, dsn, poolMode string) string {
	tb.Helper()
	program := bouncerProgram(tb)
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatal("not a URL")
	}
	password, _ := u.User.Password()
	port := FreePort(tb)
	dir, err := os.MkdirTemp("", "bouncer") //nolint:usetesting // another user must get in there
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pgbouncer.ini")
	more := ""
	if password != "" {
		more += " password='" + password + "'"
	}
	if schema := u.Query().Get("search_path"); schema != "" {
		more += " connect_query='SET search_path TO " + schema + "'"
	}
	config := fmt.Sprintf(`[databases]
test = host=%s port=%s dbname=%s user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 12
max_client_conn = 1000
server_login_retry = 1
log_connections = 0
log_disconnections = 0
`, u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username(), more, port, poolMode)
	err = errors.Join(os.WriteFile(file, []byte(config), 0o644), os.Chmod(dir, 0o755)) //nolint:gosec // another user has to read it
	if err != nil {
		tb.Fatal(err)
	}
	args := []string{"-q", file}
	if os.Geteuid() == 0 {
		args = append([]string{"-u", "nobody"}, args...) // it refuses to run as root
	}
	Serve(tb, port, program, args...)
	return "postgres://someone@127.0.0.1:" + port + "/test?sslmode=disable"
}

package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// ran holds the result of writing each engine's marker, which one test of the process does:
// Engine -> func() error.
var ran sync.Map

// markRan writes a marker into the folder HOLDFAST_TEST_RAN_DIR when a test uses the engine: a
// file named after the engine that contains the server's version. `make test` reads these files
// to report which engines ran.
func markRan(tb testing.TB, e Engine, server string) {
	tb.Helper()
	dir := os.Getenv("HOLDFAST_TEST_RAN_DIR")
	if dir == "" {
		return
	}
	mark, _ := ran.LoadOrStore(e, sync.OnceValue(func() error { return writeMarker(dir, e, server) }))
	if err := mark.(func() error)(); err != nil { //nolint:forcetypeassert // nothing else is stored
		tb.Fatalf("note that %s runs: %v", e, err)
	}
}

func writeMarker(dir string, e Engine, server string) error {
	query := map[Engine]string{
		Postgres: "SHOW server_version",
		MySQL:    "SELECT VERSION()",
		SQLite:   "SELECT sqlite_version()",
	}[e.Like()]
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	var version string
	err := withConn(ctx, server, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, query).Scan(&version)
	})
	if err != nil {
		return fmt.Errorf("ask for its version: %w", err)
	}
	if e != SQLite && e != Postgres && strings.Contains(version, "MariaDB") != (e == MariaDB) {
		return fmt.Errorf("%s names a server of another engine: it says it is %s", e.variable(), version)
	}
	return os.WriteFile(filepath.Join(dir, string(e)), []byte(version+"\n"), 0o600)
}

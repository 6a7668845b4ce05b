package sqlengine

import (
	"context"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver

	"github.com/holdfast-go/holdfast/internal/dsn"
)

// openSQLite opens a file with WAL and synchronous=FULL on one connection. That is the fastest
// form under contention, because no connection polls for the write lock.
func (e *Engine) openSQLite(own string) error {
	dir, err := os.MkdirTemp("", own)
	if err != nil {
		return err
	}
	e.later(func(context.Context) error { return os.RemoveAll(dir) })
	pool, _, err := dsn.Open("sqlite://" + filepath.Join(dir, "bench.db") + "?_pragma=synchronous(full)")
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(1)
	e.SQL = pool
	e.later(func(context.Context) error { return pool.Close() })
	return nil
}

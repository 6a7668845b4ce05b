package sqlengine

import (
	"context"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver

	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// openSQLite opens a file with WAL and synchronous=FULL on one connection. That is the fastest
// form under contention, because no connection polls for the write lock.
func (e *Engine) openSQLite() error {
	if !e.attached {
		dir, err := os.MkdirTemp("", e.Own)
		if err != nil {
			return err
		}
		e.Own = dir
		e.later(func(context.Context) error { return os.RemoveAll(dir) })
	}
	url := "sqlite://" + filepath.Join(e.Own, "bench.db") + "?_pragma=synchronous(full)"
	pool, _, err := dsn.Open(url)
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(1)
	e.SQL = pool
	e.later(func(context.Context) error { return pool.Close() })
	connector, err := dsn.Connector(url, nil)
	if err != nil {
		return err
	}
	e.connect(holdfastsql.Connector(connector), 1)
	return nil
}

//go:build unix

package admission_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// between is a connector that leads to one of two servers.
type between struct {
	servers [2]driver.Connector
	second  atomic.Bool
}

func (b *between) Connect(ctx context.Context) (driver.Conn, error) {
	if b.second.Load() {
		return b.servers[1].Connect(ctx)
	}
	return b.servers[0].Connect(ctx)
}

func (b *between) Driver() driver.Driver { return b.servers[0].Driver() }

// TestUpdatedWhileItRuns checks that a program goes on when its server was updated to a version that no test
// run names, that another one can be opened then, and that neither accepts another product or an older version.
func TestUpdatedWhileItRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		before, after string
		goesOn        bool
	}{
		{"11.8.3-MariaDB-log", "11.9.1-MariaDB-log", true},
		{"11.8.3-MariaDB-log", "11.8.9-MariaDB-log", true},
		{"10.11.9-MariaDB-log", "11.8.3-MariaDB-log", true},
		{"11.8.3-MariaDB-log", "10.11.9-MariaDB-log", false},
		{"11.8.3-MariaDB-log", "11.9.1-MariaDB-enterprise-log", false},
		{"11.8.3-MariaDB-log", "10.5.9-MariaDB-log", false},
	} {
		t.Run(c.before+" "+c.after, func(t *testing.T) {
			t.Parallel()
			b := &between{}
			for i, version := range []string{c.before, c.after} {
				url := dbtest.OwnMariaDB(t, "--version="+version)
				var err error
				if b.servers[i], err = dsn.Connector(url, nil); err != nil {
					t.Fatal(err)
				}
				pool := dbtest.OpenSQL(t, url)
				if err := migrations.Up(t.Context(), pool); err != nil && c.goesOn {
					t.Fatal(err)
				}
				if c.goesOn { // the data are the same
					must(t, pool, `DELETE FROM holdfast_servers`, `INSERT INTO holdfast_servers (product, seen_at) VALUES ('MariaDB 11.8', 1), ('MariaDB 10.11', 1)`)
				}
			}
			pool := sql.OpenDB(b)
			defer func() { _ = pool.Close() }()
			pool.SetMaxIdleConns(0)
			db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
			if err != nil {
				t.Fatal(err)
			}
			b.second.Store(true)
			for range 2 {
				err := db.InTx(t.Context(), func(context.Context, *sql.Tx) error { return nil })
				if c.goesOn && err != nil {
					t.Errorf("the running program stops: %v", err)
				} else if !c.goesOn {
					wantRefused(t, err, "engine")
				}
			}
			if _, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true}); c.goesOn && err != nil {
				t.Errorf("another program does not begin: %v", err)
			}
		})
	}
}

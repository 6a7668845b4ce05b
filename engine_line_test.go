package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// events is a Tracer that keeps the events about servers.
type events []holdfast.Event

func (e *events) Start(ctx context.Context, _ holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	return ctx, nil
}
func (e *events) Statement(context.Context, holdfast.Statement) {}
func (e *events) Event(_ context.Context, f holdfast.Event) {
	if f.Name == "server.unproven" {
		*e = append(*e, f)
	}
}

// TestLines checks which version lines of a server may be used though no test run names them, by the rows of
// the table "servers".
func TestLines(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		name := map[dbtest.Engine]string{dbtest.Postgres: "PostgreSQL", dbtest.MySQL: "MySQL", dbtest.MariaDB: "MariaDB"}[e]
		if name == "" {
			return // the library is a part of the program, or nothing can be proven there
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		var heard events
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Tracers: []holdfast.Tracer{&heard}})
		if err != nil {
			t.Fatal(err)
		}
		a := access.Of(db)
		run := func(query string) {
			t.Helper()
			if _, err := pool.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		servers := a.Table("servers")
		var seen string
		if err := pool.QueryRowContext(t.Context(), `SELECT product FROM `+servers).Scan(&seen); err != nil || seen != db.Product() {
			t.Fatalf("migrate up noted %q, %v", seen, err)
		}
		row := func(product string, age time.Duration, proven string) string {
			return fmt.Sprintf(`INSERT INTO %s (product, seen_at, proven_at) VALUES ('%s', %s - %d, %s)`, servers, product, a.Dialect.Now, age.Microseconds(), proven)
		}
		const day = 24 * time.Hour
		for _, c := range []struct {
			what, product string
			rows          []string
			admitted      bool
			left          time.Duration // 0: nothing is said
			noted         bool          // it has a row afterwards
		}{
			{"new tables on it", name + " 99.1", nil, false, 0, false},
			{"seen by migrate up alone", name + " 99.1", []string{row(name+" 99.1", 0, "NULL")}, false, 0, true},
			{"proven", name + " 99.1", []string{row(name+" 99.1", 99*day, "1")}, true, 0, true},
			{"updated from a tested one", name + " 99.1", []string{row(db.Product(), day, "NULL")}, true, 14 * day, true},
			{"updated from a proven one", name + " 99.10", []string{row(name+" 99.9", day, "1")}, true, 14 * day, true},
			{"updated from one that was not", name + " 99.10", []string{row(name+" 99.9", day, "NULL")}, false, 0, false},
			{"updated ten days ago", name + " 99.1", []string{row(db.Product(), day, "NULL"), row(name+" 99.1", 10*day, "NULL")}, true, 4 * day, true},
			{"updated three weeks ago", name + " 99.1", []string{row(db.Product(), day, "NULL"), row(name+" 99.1", 21*day, "NULL")}, false, 0, true},
			{"another product's", "Aurora " + name + " 99.1", []string{row(db.Product(), day, "1")}, false, 0, false},
			{"an earlier version", name + " 99.1", []string{row(name+" 99.2", day, "1")}, false, 0, false},
			{"without a version", name, []string{row(db.Product(), day, "1")}, false, 0, false},
		} {
			run(`DELETE FROM ` + servers)
			for _, r := range c.rows {
				run(r)
			}
			heard = nil
			err := db.OnLine(t.Context(), c.product)
			if c.admitted != (err == nil) || err != nil && !errors.Is(err, holdfast.ErrUnsupported) {
				t.Errorf("%s: %v", c.what, err)
			}
			if said := len(heard) > 0; said != (c.left > 0) || said && (heard[0].Duration > c.left || heard[0].Duration < c.left-time.Hour) {
				t.Errorf("%s: the events are %+v", c.what, heard)
			}
			var n int
			if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+servers+` WHERE product = '`+c.product+`'`).Scan(&n); err != nil || n == 1 != c.noted {
				t.Errorf("%s: %d rows are there, %v", c.what, n, err)
			}
		}
		run(`DROP TABLE ` + servers)
		if err := db.OnLine(t.Context(), name+" 99.1"); !errors.Is(err, holdfast.ErrUnsupported) {
			t.Errorf("without the table: %v", err)
		}
	})
}

package scaleout_test

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestConsolidator commits while a slow read runs. An equal read that begins after the commit gets the
// answer of the slow one, if it is not one of Holdfast's.
func TestConsolidator(t *testing.T) {
	pool := dbtest.OpenSQL(t, sharded(t)[0])
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	run := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	run(orders)
	const slow = `SELECT refunded, SLEEP(2) FROM orders WHERE owner = 'consolidator'`
	for _, c := range []struct {
		what, read string
		want       int
	}{{"naive", slow, 0}, {"Holdfast's", access.Of(db).Dialect.Compile("slow", slow).Text, 1}} {
		run(`DELETE FROM orders WHERE owner = 'consolidator'`)
		run(`INSERT INTO orders (owner, refunded, version) VALUES ('consolidator', 0, 1)`)
		read := func() (refunded int, err error) {
			var slept int
			err = pool.QueryRowContext(t.Context(), c.read).Scan(&refunded, &slept)
			return refunded, err
		}
		first := make(chan error, 1)
		go func() {
			_, err := read()
			first <- err
		}()
		dbtest.Eventually(t, "the first read runs", func() bool {
			var n int
			if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'select%refunded, sleep%'`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
		run(`UPDATE orders SET refunded = 1 WHERE owner = 'consolidator'`)
		got, err := read()
		if err != nil || got != c.want {
			t.Errorf("%s read after the commit: %d, %v, want %d", c.what, got, err, c.want)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	}
}

package holdfastsql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// TestStatementsStayPrepared counts the statements that the server prepares on a pool of one
// connection. The statements of the first calls are prepared when a later call begins, because the
// pool's only connection is in use before that.
func TestStatementsStayPrepared(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		if e != dbtest.MySQL && e != dbtest.MariaDB {
			return // the others do not count
		}
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		if err := migrations.Up(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		pool.SetMaxOpenConns(1)
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		store, err := idempotency.New(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		work := func() {
			calls++
			op := idempotency.Op{Name: "refund", Key: fmt.Sprint(calls), Request: calls}
			if _, err := idempotency.Do(t.Context(), store, op, func(context.Context, *sql.Tx) (int, error) { return calls, nil }); err != nil {
				t.Fatal(err)
			}
		}
		prepared := func() (n int) {
			var name string
			if err := pool.QueryRowContext(t.Context(), `SHOW SESSION STATUS LIKE 'Com_stmt_prepare'`).Scan(&name, &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		for range 40 {
			work()
		}
		before := prepared()
		for range 10 {
			work()
		}
		if n := prepared() - before; before == 0 || n != 0 {
			t.Errorf("%d statements were prepared by 40 rounds, and %d by 10 more", before, n)
		}
	})
}

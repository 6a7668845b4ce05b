package idempotency_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPlansOfSmallTables checks that a nearly empty table, for example after the nightly
// reaping, is not read by sequential scans. PostgreSQL scans the whole of a table with one or
// two pages, and keeps that plan for a prepared statement while the table grows, until
// autovacuum has analyzed it.
func TestPlansOfSmallTables(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine != dbtest.Postgres {
			return // the other engines store rows in the index of the key
		}
		e := conformance.New(t, conformance.SQL(), engine)
		locks, err := sqllock.New(e.Ctx, e.DB)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close(context.WithoutCancel(e.Ctx)) })
		store, err := idempotency.New(e.Ctx, e.DB)
		if err != nil {
			t.Fatal(err)
		}
		use := func(key string) {
			for range 2 {
				if _, err := idempotency.Do(e.Ctx, store, idempotency.Op{Name: "refund", Key: key, NoFingerprint: true}, func(context.Context, *sql.Tx) (string, error) { return "", nil }); err != nil {
					t.Fatal(err)
				}
				lease, err := locks.Acquire(e.Ctx, key)
				if err != nil {
					t.Fatal(err)
				}
				if err := lease.Release(e.Ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		use("first")
		for _, table := range []string{"records", "locks", "floor"} {
			e.Must(`VACUUM ANALYZE holdfast_` + table)
		}
		e.SQL.SetMaxOpenConns(1)
		t.Cleanup(func() { e.SQL.SetMaxOpenConns(0) }) // the next test has this pool
		const read = `SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('holdfast_records', 'holdfast_locks')`
		before := e.Int(read)
		for i := range 50 {
			use(fmt.Sprint(i))
		}
		e.Eventually("the statistics are there", func() bool {
			return e.Int(`SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'holdfast_records'`) >= 51
		})
		// Earlier reads may be counted late. Sequential scans would add about ten thousand rows.
		if after := e.Int(read); after > before+2000 {
			t.Errorf("%d rows were read without an index", after-before)
		}
	})
}

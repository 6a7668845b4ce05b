package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestBench checks that the bench measures everything and leaves nothing behind.
func TestBench(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		url := existingDSN(t, e)
		pool := dbtest.OpenSQL(t, url)
		gone := func(when string) {
			t.Helper()
			for _, table := range []string{"rows", "orders", "refunds", "ledger", "records", "locks", "migrations"} {
				if _, err := pool.ExecContext(t.Context(), `SELECT 1 FROM holdfast_bench_`+table); err == nil {
					t.Errorf("%s: the table %s is still there", when, table)
				}
			}
		}
		bench := func(ctx context.Context, args ...string) (int, string, string) {
			var out, errs strings.Builder
			code := run(ctx, append([]string{"bench", "-duration=1s", "-dsn", url}, args...), &out, &errs)
			return code, out.String(), errs.String()
		}

		code, out, said := bench(t.Context(), "-json", "-clients=2")
		var got benched
		if err := json.Unmarshal([]byte(out), &got); code != exitOK || err != nil || said != "" {
			t.Fatalf("status %d, %s, %s", code, out, said)
		}
		against := map[string]string{
			"round trip": "", "commit": "", "bare lease": "", "lease": "bare lease",
			"bare refund": "", "do, connector": "bare refund", "do, plain pool": "bare refund", "replay": "round trip",
		}
		for _, m := range got.Measured {
			bare, ok := against[m.What]
			if !ok || m.Against != bare || (bare != "") != (m.Ratio > 0) || (bare != "") != (m.AddedUS != 0) || m.Count < benchRounds*2 || m.P50US <= 0 || m.P99US < m.P50US || m.PerSecond <= 0 {
				t.Errorf("got %+v", m)
			}
			delete(against, m.What)
		}
		if len(against) > 0 || got.Clients != 2 || got.TookMS < 900 || !strings.Contains(got.Flush, "=") {
			t.Errorf("got %+v without %v", got, against)
		}
		gone("at the end")

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for ctx.Err() == nil { // until the bench has written rows
				var n int
				if err := pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM holdfast_bench_rows`).Scan(&n); err == nil && n > 0 {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		}()
		if code, out, said := bench(ctx, "-duration=1m"); code != exitFailed || out != "" || said == "" {
			t.Errorf("interrupted: status %d, %s, %s", code, out, said)
		}
		gone("interrupted")

		// Another program's table has the prefix of the bench.
		exec := func(query string) {
			t.Helper()
			if _, err := pool.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		exec(`CREATE TABLE holdfast_bench_mine (id INTEGER)`)
		for _, args := range [][]string{nil, {"-clean"}} {
			if code, out, said := bench(t.Context(), args...); code != exitFailed || out != "" || !strings.Contains(said, "holdfast_bench_mine") {
				t.Errorf("%v beside another's table: status %d, %s, %s", args, code, out, said)
			}
		}
		exec(`DROP TABLE holdfast_bench_mine`)

		// A killed bench left its tables behind.
		if code, _, said := command(t, "migrate", "up", "-prefix=holdfast_bench_", "-dsn", url); code != exitOK {
			t.Fatal(said)
		}
		exec(`CREATE TABLE holdfast_bench_rows (id INTEGER)`)
		if code, _, said := bench(t.Context()); code != exitFailed || !strings.Contains(said, "--clean") {
			t.Errorf("beside another bench: status %d, %s", code, said)
		}
		for range 2 {
			if code, _, said := bench(t.Context(), "-clean"); code != exitOK {
				t.Errorf("-clean: status %d, %s", code, said)
			}
			gone("cleaned")
		}
	})
}

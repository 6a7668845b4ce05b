package reaper_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// scale returns the number of rows that expire and the length of each window of the
// measurement. HOLDFAST_TEST_SCALE selects a million rows and prints the latency of the
// foreground. The small form only checks that everything works.
func scale() (rows int, window time.Duration) {
	if os.Getenv("HOLDFAST_TEST_SCALE") != "" {
		return 1_000_000, 3 * time.Second
	}
	return 3000, 50 * time.Millisecond
}

// TestReapRecordsAtScale runs alone and one engine after the other, because it measures.
func TestReapRecordsAtScale(t *testing.T) { million(t, "records", fillRecords) }

// TestReapLocksAtScale uses a table without an index on the expiry.
func TestReapLocksAtScale(t *testing.T) { million(t, "locks", fillLocks) }

func million(t *testing.T, table string, insert func(e *env) string) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			e := conformance.New(t, conformance.SQL(), engine)
			e.Ctx = t.Context() // a million rows take longer than the usual timeout
			reapMillion(e, table, insert(e))
		})
	}
}

type env = conformance.Env[*sql.Tx]

// fillRecords returns an INSERT of expired records, one for each row of {numbers}.
func fillRecords(e *env) string {
	hash, empty, key := `randomblob(32)`, `x'00000000000000000000000000000000'`, `CAST(n AS BLOB)`
	switch e.Engine.Like() {
	case dbtest.Postgres:
		hash, empty, key = `sha256(n::text::bytea)`, `decode('00000000000000000000000000000000', 'hex')`, `n::text::bytea`
	case dbtest.MySQL:
		hash, key = `UNHEX(SHA2(n, 256))`, `n`
	}
	return fmt.Sprintf(`INSERT INTO holdfast_records (key_hash, namespace, owner, operation, op_key, fingerprint_version, attempt, state, result, created_at, finished_at, result_expires_at, key_expires_at)
{numbers} SELECT %s, 'n', '', 'due', %s, 1, %s, 2, NULL, 1, 2, NULL, {past} + n FROM numbers`, hash, key, empty)
}

func fillLocks(e *env) string {
	name := `CAST(x'01' || printf('%09d', n) AS BLOB)`
	switch e.Engine.Like() {
	case dbtest.Postgres:
		name = `'\x01'::bytea || convert_to(lpad(n::text, 9, '0'), 'UTF8')`
	case dbtest.MySQL:
		name = `CONCAT(0x01, LPAD(n, 9, '0'))`
	}
	return `INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) {numbers} SELECT '', ` + name + `, 1000 + n, NULL, 'holder', 1, {past} + n FROM numbers`
}

// fill inserts rows, 50,000 in a statement.
func fill(e *env, insert string, rows int) {
	e.Helper()
	const most = 50_000
	past := e.Now() - 7_200_000_000
	for from := 0; from < rows; from += most {
		numbers := fmt.Sprintf(`WITH d AS (SELECT 0 AS x UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
), numbers AS (SELECT %d + a.x + 10 * b.x + 100 * c.x + 1000 * f.x + 10000 * g.x AS n FROM d a, d b, d c, d f, d g
 WHERE a.x + 10 * b.x + 100 * c.x + 1000 * f.x + 10000 * g.x < %d)`, from, min(most, rows-from))
		e.Must(strings.NewReplacer("{numbers}", numbers, "{past}", fmt.Sprint(past)).Replace(insert))
	}
	switch e.Engine.Like() { // update the statistics, as happens in normal operation
	case dbtest.Postgres:
		e.Must(`VACUUM ANALYZE holdfast_records, holdfast_locks`)
	case dbtest.MySQL:
		e.Must(`ANALYZE TABLE holdfast_records`) // of several, no router takes it
		e.Must(`ANALYZE TABLE holdfast_locks`)
	}
}

// foreground makes refunds: four callers, each with a refund every few milliseconds.
type foreground struct {
	under atomic.Bool
	mu    sync.Mutex
	took  [2][]time.Duration // without and with the reaper
}

func (f *foreground) run(ctx context.Context, e *env, done *sync.WaitGroup) {
	store := e.Store(idempotency.Options{})
	var n atomic.Int64
	for range 4 {
		done.Go(func() {
			for ctx.Err() == nil {
				under := f.under.Load()
				begun := time.Now()
				if _, err := e.Do(store, conformance.Op(fmt.Sprint("refund ", n.Add(1)))); err != nil {
					e.Errorf("a refund: %v", err)
					return
				}
				if took := time.Since(begun); under == f.under.Load() {
					at := 0
					if under {
						at = 1
					}
					f.mu.Lock()
					f.took[at] = append(f.took[at], took)
					f.mu.Unlock()
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
}

// take returns the sorted durations of a window.
func (f *foreground) take(at int) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	took := f.took[at]
	f.took[at] = nil
	slices.Sort(took)
	return took
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// reapMillion clears the rows while refunds go on. Windows with and without the reaper
// alternate, so other load on the machine affects both.
func reapMillion(e *env, table, insert string) {
	rows, window := scale()
	fill(e, insert, rows)
	r := e.Reaper(reaper.Options{})
	f := &foreground{}
	ctx, stop := context.WithCancel(e.Ctx)
	var callers sync.WaitGroup
	f.run(ctx, e, &callers)
	time.Sleep(window) // to warm up
	var all [2][]time.Duration
	var ratios []float64
	var cleared int64
	cut := false // a batch was cut off: what it cleared is not counted
	var reaping time.Duration
	for done := false; !done && e.Ctx.Err() == nil; {
		f.take(0)
		time.Sleep(window)
		quiet := f.take(0)
		f.under.Store(true)
		bounded, cancel := context.WithTimeout(ctx, max(window, time.Second)) // enough for a few batches on any machine
		report, err := r.Sweep(bounded)
		cancel()
		f.under.Store(false)
		under := f.take(1)
		cleared += report.Rows()
		reaping += report.Duration
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			e.Error(err)
			break
		}
		cut = cut || err != nil
		// A batch that the bound cut off may still hold its rows' locks in the next window.
		done = err == nil && !slices.ContainsFunc(report.Tasks, func(t reaper.TaskReport) bool { return t.Passed > 0 })
		all[0], all[1] = append(all[0], quiet...), append(all[1], under...)
		if len(quiet) > 100 && len(under) > 100 {
			ratios = append(ratios, float64(quantile(under, .99))/float64(quantile(quiet, .99)))
		}
	}
	stop()
	callers.Wait()
	if left := e.Int(`SELECT COUNT(*) FROM holdfast_` + table + ` WHERE ` + map[string]string{"records": "operation = 'due'", "locks": "holder = 'holder'"}[table]); left != 0 || cleared > int64(rows) || !cut && cleared != int64(rows) {
		e.Errorf("cleared %d of %d, %d are left", cleared, rows, left)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE operation = 'refund'`); n != e.Int(`SELECT COUNT(*) FROM effects`) || n == 0 {
		e.Errorf("%d records of refunds, and as many effects are wanted", n)
	}
	for _, took := range all {
		slices.Sort(took)
	}
	slices.Sort(ratios)
	median := 0.0
	if len(ratios) > 0 {
		median = ratios[len(ratios)/2]
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	e.Logf("REAP %s %s: %d rows in %.1f s, %.0f rows/s; refunds quiet p50 %.2f p99 %.2f ms, beside it p50 %.2f p99 %.2f ms; p99 ratio %.2f, median of %d windows %.2f (%.2f to %.2f)",
		e.Engine, table, cleared, reaping.Seconds(), float64(cleared)/reaping.Seconds(),
		ms(quantile(all[0], .5)), ms(quantile(all[0], .99)), ms(quantile(all[1], .5)), ms(quantile(all[1], .99)),
		float64(quantile(all[1], .99))/float64(max(quantile(all[0], .99), 1)), len(ratios), median, first(ratios), last(ratios))
}

func first(r []float64) float64 { return append(r, 0)[0] }

func last(r []float64) float64 { return append([]float64{0}, r...)[len(r)] }

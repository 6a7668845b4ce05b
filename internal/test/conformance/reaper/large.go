package reaper

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// LargeTable is one test with 100,000 rows of locks, one in ten of them due.
func LargeTable[Tx any](t *testing.T, h conformance.Handle[Tx]) { run(t, h, largeLockTable[Tx]) }

// manyLocks makes 100,000 rows, every tenth of them expired. The order of their tokens differs
// from the order of their names.
func (e *env[Tx]) manyLocks(expired, live int) {
	e.Helper()
	name := `CONCAT(0x01, LPAD(n, 6, '0'))`
	switch e.Engine {
	case dbtest.Postgres:
		name = `'\x01'::bytea || convert_to(lpad(n::text, 6, '0'), 'UTF8')`
	case dbtest.SQLite:
		name = `CAST(x'01' || substr('00000' || n, -6) AS BLOB)`
	}
	e.Must(fmt.Sprintf(`INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at)
WITH d AS (SELECT 0 AS x UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
), numbers AS (SELECT a.x + 10 * b.x + 100 * c.x + 1000 * f.x + 10000 * g.x AS n FROM d a, d b, d c, d f, d g)
SELECT '', %s, 1000 + n * 7919 %% 100003, NULL, 'holder', 1, CASE WHEN n %% 10 = 0 THEN %d ELSE %d END FROM numbers`, name, expired, live))
}

// largeLockTable checks that the reaper reads pages and deletes batches by the primary key, so
// that a row outside the batch blocks no other session.
func largeLockTable[Tx any](e *env[Tx]) {
	const rows, due, batch = 100_000, 10_000, 500
	now := e.Now()
	e.manyLocks(now-2*hour, now+hour)
	sum := e.Int(`SELECT CAST(SUM(token) AS DECIMAL(20)) FROM holdfast_locks WHERE expires_at > $1`, now)
	most := e.Int(`SELECT MAX(token) FROM holdfast_locks WHERE expires_at < $1`, now)
	free := rows - batch
	seen := &statements{then: func(s holdfast.Statement, nth int) {
		if s.Name != "sweep.locks.write" || nth > 1 || !e.DB.Capabilities().RowLocks {
			return
		}
		// The first batch is deleted and not committed.
		if !access.Of(e.DB).Dialect.Leases.Alone { // otherwise the engine skips nothing
			free = e.Int(`SELECT COUNT(*) FROM (SELECT name FROM holdfast_locks FOR UPDATE SKIP LOCKED) l`)
		}
		bounded := *e // while the floor is locked, the grant would wait for this goroutine
		ctx, cancel := context.WithTimeout(e.Ctx, dbtest.Hang)
		defer cancel()
		bounded.Ctx = ctx
		if token, err := bounded.grant(e.DB, lockName("new"), lockstmt.AttemptID{}); token == 0 || err != nil {
			e.Errorf("a new key had to wait: %v", err)
		}
	}}
	r := e.Reaper(quick(batch), seen.observe())
	report := e.sweepLocks(r, due)
	if report.Batches != due/batch || report.Passed != 0 || free != rows-batch {
		e.Errorf("report %+v; while a batch was deleted %d rows could be locked", report, free)
	}
	if n := e.Int(`SELECT CAST(SUM(token) AS DECIMAL(20)) FROM holdfast_locks WHERE holder = 'holder' AND granted_at = 1`); n != sum || e.floor() != most {
		e.Errorf("of the live rows the tokens' sum is %d, want %d; the floor is %d, want %d", n, sum, e.floor(), most)
	}
	want := map[string]int{"sweep.locks.page": 21, "sweep.locks.find": 21, "sweep.locks.write": 20}
	for name, n := range want {
		if seen.count[name] != n {
			e.Errorf("%s ran %d times, want %d", name, seen.count[name], n)
		}
	}
	if n := seen.count["sweep.locks.raise"]; n < 1 || n > 10 {
		e.Errorf("the floor was raised %d times", n)
	}
	e.Logf("%v", seen.count)

	// No row is due: the reaper reads the table once, in pages, and writes nothing.
	idle := &statements{}
	e.sweepLocks(e.Reaper(reaper.Options{Pace: 0.01}, idle.observe()), 0)
	if idle.count["sweep.locks.page"] != 19 || idle.count["sweep.locks.write"]+idle.count["begin"] != 0 {
		e.Errorf("a sweep without work ran %v", idle.count)
	}
}

package sqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// many returns the number of leases and waiters in the tests of scale.
func many() int {
	if testing.Short() {
		return 2000
	}
	return 10_000
}

func scaleKey(i int) string { return fmt.Sprintf("key %06d", i) }

// plant inserts rows of n locks that are held for an hour, and returns their attempts.
func plant(t *testing.T, pool *sql.DB, engine dbtest.Engine, l *Locker[*sql.Tx], n int) []keeper.AttemptID {
	t.Helper()
	blob := func(b []byte) string {
		if engine == dbtest.Postgres {
			return `'\x` + hex.EncodeToString(b) + `'`
		}
		return `x'` + hex.EncodeToString(b) + `'`
	}
	attempts := make([]keeper.AttemptID, n)
	for from := 0; from < n; from += 500 {
		var rows []string
		for i := from; i < min(from+500, n); i++ {
			attempts[i] = keeper.NewProcess().NewAttemptID()
			name, err := lockname.Of(lockname.Lease, core.Owner{}, scaleKey(i))
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, fmt.Sprintf(`('', %s, 1, %s, 'somebody', 1, %s + 3600000000)`, blob(name.Row()), blob(attempts[i][:]), l.access.Dialect.Now))
		}
		if _, err := pool.ExecContext(t.Context(), `INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES `+strings.Join(rows, ", ")); err != nil {
			t.Fatal(err)
		}
	}
	return attempts
}

// memory returns the bytes used by the heap and the goroutines' stacks.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func sum(n map[string]int) (all int) {
	for v := range maps.Values(n) {
		all += v
	}
	return all
}

// TestManyWaitersAtScale starts thousands of goroutines that wait for one key, and for as many
// keys. They use no more connections than askAtOnce and a few, and a bounded number of
// statements a second that does not depend on their number. The test counts over time and
// measures memory, so make scale runs it, and alone.
func TestManyWaitersAtScale(t *testing.T) {
	dbtest.OnlyAtScale(t)
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine)+"/one key", func(t *testing.T) { manyWaiters(t, engine, many(), 1) })
		t.Run(string(engine)+"/a key each", func(t *testing.T) { manyWaiters(t, engine, many(), many()) })
	}
}

func manyWaiters(t *testing.T, engine dbtest.Engine, n, keys int) {
	l, pool, seen := openLocker(t, engine, Options{})
	plant(t, pool, engine, l, keys)
	conns := 0
	look := func() { conns = max(conns, pool.Stats().OpenConnections) }
	look()
	seen.take()
	before := memory()
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	var granted atomic.Int64
	for i := range n {
		waiting.Go(func() {
			if _, err := l.Acquire(ctx, scaleKey(i%keys)); err == nil {
				granted.Add(1)
			}
		})
	}
	m := l.leases
	watched := func() (all int) {
		m.k.Mu.Lock()
		defer m.k.Mu.Unlock()
		for _, q := range m.queues {
			for _, w := range q.waiters {
				if w.watched {
					all++
				}
			}
		}
		return all
	}
	for watched() < keys && t.Context().Err() == nil {
		look()
		time.Sleep(time.Millisecond)
	}
	first := sum(seen.take())
	begun := time.Now()
	for time.Since(begun) < 1200*time.Millisecond {
		look()
		time.Sleep(time.Millisecond)
	}
	elapsed := time.Since(begun)
	steady := seen.take()
	each := (memory() - before) / int64(n)
	cancel()
	waiting.Wait()
	if granted.Load() > 0 {
		t.Errorf("%d were granted a lock that somebody has", granted.Load())
	}
	rate := float64(sum(steady)) / elapsed.Seconds()
	t.Logf("%d waiters, %d keys: %d statements until all wait, then %.0f/s %v; %d connections; %d bytes a waiter", n, keys, first, rate, steady, conns, each)
	if most := 8*keys + 1000; first > most {
		t.Errorf("%d statements until all wait, want at most %d", first, most)
	}
	if most := 150 + 300*elapsed.Seconds(); float64(sum(steady)) > most {
		t.Errorf("%d statements in %v, want at most %.0f", sum(steady), elapsed, most)
	}
	if most := askAtOnce + 8; conns > most {
		t.Errorf("%d connections, want at most %d", conns, most)
	}
	if each > 16<<10 {
		t.Errorf("%d bytes a waiter", each)
	}
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// hold makes leases from rows that were planted.
func hold(t *testing.T, l *Locker[*sql.Tx], attempts []keeper.AttemptID) []*keeper.Lease {
	t.Helper()
	m := l.leases
	s, err := l.settings(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	leases := make([]*keeper.Lease, len(attempts))
	for i, id := range attempts {
		name, err := lockname.Of(lockname.Lease, core.Owner{}, scaleKey(i))
		if err != nil {
			t.Fatal(err)
		}
		if leases[i], err = m.begin(keeper.Attempt{Name: name, ID: id, TTL: s.TTL}, s, 1, time.Now(), true); err != nil || leases[i] == nil {
			t.Fatal(err)
		}
	}
	return leases
}

// TestManyLeasesAtScale checks that thousands of held leases are renewed in a few statements.
// At scale each lease takes little memory, which is measured alone.
func TestManyLeasesAtScale(t *testing.T) {
	dbtest.NotUnderRace(t, "ten thousand leases are too many for it")
	n := many()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		l, pool, seen := openLocker(t, engine, Options{TTL: time.Hour})
		attempts := plant(t, pool, engine, l, n)
		before := memory()
		leases := hold(t, l, attempts)
		each := (memory() - before) / int64(n)
		seen.take()
		begun := time.Now()
		l.leases.k.RenewNow(t.Context(), leases)
		took := time.Since(begun)
		taken := seen.take()
		delete(taken, "locks.rivals") // once after a lease begins
		sent := sum(taken)
		t.Logf("%d leases renewed with %d statements in %v; %d bytes a lease", n, sent, took.Round(time.Millisecond), each)
		// On MySQL and MariaDB, another statement before each one sets the isolation level.
		if most := 2 * ((n + keeper.Batch - 1) / keeper.Batch); sent > most || sent > 20 {
			t.Errorf("%d statements, want at most %d", sent, most)
		}
		for _, lease := range leases {
			if l.leases.k.Mu.Lock(); !lease.Until().After(begun.Add(50 * time.Minute)) {
				t.Error("a lease was not renewed")
			}
			l.leases.k.Mu.Unlock()
		}
		if dbtest.AtScale() && each > 4<<10 {
			t.Errorf("%d bytes a lease", each)
		}
		l.leases.k.Forget(leases)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slow is a database that takes too long for statements with many parameters.
type slow struct {
	core.Querier
	most  int
	sizes *[]int
	mu    *sync.Mutex
}

func (s slow) judge(args []any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	*s.sizes = append(*s.sizes, len(args))
	if len(args) > s.most {
		return fmt.Errorf("canceling the statement: %w", context.DeadlineExceeded)
	}
	return nil
}

func (s slow) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	if err := s.judge(args); err != nil {
		return core.Result{}, err
	}
	return s.Querier.Exec(ctx, query, args...)
}

func (s slow) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if err := s.judge(args); err != nil {
		return nil, err
	}
	return s.Querier.Query(ctx, query, args...)
}

// TestRenewalThatTakesTooLong checks that a batch that does not finish in time is not sent
// again unchanged, and that all leases are renewed by the second attempt.
func TestRenewalThatTakesTooLong(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, pool, _ := openLocker(t, engine, Options{TTL: time.Hour})
		var sizes []int
		var mu sync.Mutex
		l.leases.k.Statements.Wrap(func(q core.Querier) core.Querier { return slow{q, 700, &sizes, &mu} })
		leases := hold(t, l, plant(t, pool, engine, l, keeper.Batch))
		begun := time.Now()
		for range 2 {
			l.leases.k.RenewNow(t.Context(), leases)
		}
		for _, lease := range leases {
			l.leases.k.Mu.Lock()
			if !lease.Live() || lease.RenewalError() != nil || !lease.Until().After(begun.Add(50*time.Minute)) {
				t.Errorf("a lease was not renewed: %v", lease.RenewalError())
				l.leases.k.Mu.Unlock()
				break
			}
			l.leases.k.Mu.Unlock()
		}
		mu.Lock()
		t.Logf("parameters of the statements: %v", sizes)
		mu.Unlock()
		if size := l.leases.k.RenewSize(); size < keeper.SmallBatch || size == keeper.Batch {
			t.Errorf("the next batches are of %d", size)
		}
		l.leases.k.Forget(leases)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// explaining asks the server how it runs each write, before it runs it.
type explaining struct {
	core.Querier
	*plans
}

type plans struct {
	t    *testing.T
	pool *sql.DB

	mu   sync.Mutex
	list []string // of holdfast_locks: how it is read
}

func (e explaining) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	if strings.HasPrefix(query, "UPDATE") {
		e.explain(ctx, query, args)
	}
	return e.Querier.Exec(ctx, query, args...)
}

func (e *plans) explain(ctx context.Context, query string, args []any) {
	rows, err := e.pool.QueryContext(ctx, "EXPLAIN FORMAT=TRADITIONAL "+query, args...)
	if err != nil {
		e.t.Error(err)
		return
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		e.t.Error(err)
	}
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			e.t.Error(err)
		}
		row := map[string]string{}
		for i, column := range columns {
			row[column] = values[i].String
		}
		if table := row["table"]; !strings.HasPrefix(table, "<") {
			e.mu.Lock()
			e.list = append(e.list, table+" "+row["type"])
			e.mu.Unlock()
		}
	}
	if err := rows.Err(); err != nil {
		e.t.Error(err)
	}
}

// TestRenewalsReadTheirRows checks that a renewal of half of an owner's leases reads no others. It
// would lock those too, each for a moment, in which their own renewal skips them.
func TestRenewalsReadTheirRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine != dbtest.MySQL && engine != dbtest.MariaDB {
			return // the others lock the rows that they find
		}
		const n = 500
		l, pool, _ := openLocker(t, engine, Options{TTL: time.Hour})
		explains := &plans{t: t, pool: pool}
		l.leases.k.Statements.Wrap(func(q core.Querier) core.Querier { return explaining{q, explains} })
		leases := hold(t, l, plant(t, pool, engine, l, n)[:n/2])
		if _, err := pool.ExecContext(t.Context(), `ANALYZE TABLE holdfast_locks`); err != nil {
			t.Fatal(err)
		}
		l.leases.k.RenewNow(t.Context(), leases)
		explains.mu.Lock()
		found := explains.list
		explains.mu.Unlock()
		if len(found) == 0 {
			t.Error("no statement was explained")
		}
		for _, plan := range found {
			if !strings.HasSuffix(plan, " range") && !strings.HasSuffix(plan, " eq_ref") {
				t.Errorf("the renewal reads %s", plan)
			}
		}
		l.leases.k.Forget(leases)
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

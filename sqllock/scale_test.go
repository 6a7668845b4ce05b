package sqllock

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dbtest"
)

// many is how many there are of what is measured at scale; manyKeys, of keys that
// are waited for, each of which asks the database once at first. HOLDFAST_TEST_SCALE
// asks for as many of those, too.
func many() int {
	if testing.Short() {
		return 2000
	}
	return 10_000
}

func manyKeys() int {
	if os.Getenv("HOLDFAST_TEST_SCALE") != "" {
		return many()
	}
	return many() / 10
}

func scaleKey(i int) string { return fmt.Sprintf("key %06d", i) }

// plant makes rows of n locks that somebody has for an hour, and says who.
func plant(t *testing.T, pool *sql.DB, engine dbtest.Engine, l *Locker[*sql.Tx], n int) []owner {
	t.Helper()
	blob := func(b []byte) string {
		if engine == dbtest.Postgres {
			return `'\x` + hex.EncodeToString(b) + `'`
		}
		return `x'` + hex.EncodeToString(b) + `'`
	}
	owners := make([]owner, n)
	for from := 0; from < n; from += 500 {
		var rows []string
		for i := from; i < min(from+500, n); i++ {
			owners[i] = newOwner()
			name, err := nameOf(kindLease, scaleKey(i))
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, fmt.Sprintf(`(%s, 1, %s, 'somebody', 1, %s + 3600000000)`, blob(name), blob(owners[i][:]), l.access.Dialect.Now))
		}
		if _, err := pool.ExecContext(t.Context(), `INSERT INTO holdfast_locks (name, token, owner, holder, granted_at, expires_at) VALUES `+strings.Join(rows, ", ")); err != nil {
			t.Fatal(err)
		}
	}
	return owners
}

// memory is what the heap and the goroutines' stacks take.
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

// TestManyWaiters: thousands of goroutines wait for one key, and for as many
// keys. That takes no more connections than askAtOnce and a few, and a bounded
// number of statements a second, whatever their number. It measures memory, so
// it runs alone.
func TestManyWaiters(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine)+"/one key", func(t *testing.T) { manyWaiters(t, engine, many(), 1) })
		t.Run(string(engine)+"/a key each", func(t *testing.T) { manyWaiters(t, engine, manyKeys(), manyKeys()) })
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
		m.mu.Lock()
		defer m.mu.Unlock()
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
	if each > 16<<10 && !testing.Short() {
		t.Errorf("%d bytes a waiter", each)
	}
	if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// hold makes leases of rows that were planted.
func hold(t *testing.T, l *Locker[*sql.Tx], owners []owner) []*Lease {
	t.Helper()
	m := l.leases
	s, err := m.options.settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.values = t.Context()
	leases := make([]*Lease, len(owners))
	for i, o := range owners {
		name, err := nameOf(kindLease, scaleKey(i))
		if err != nil {
			t.Fatal(err)
		}
		if leases[i], err = m.begin(scaleKey(i), attempt{name: name, owner: o, ttl: s.ttl}, s, 1, time.Now()); err != nil || leases[i] == nil {
			t.Fatal(err)
		}
	}
	return leases
}

// drop ends leases without a word to the database.
func (m *manager) drop(leases []*Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range leases {
		m.end(l, ErrReleased)
	}
}

// TestManyLeases: thousands of held leases are renewed in a handful of
// statements, and each takes little memory. It measures memory, so it runs alone.
func TestManyLeases(t *testing.T) {
	n := many()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, pool, seen := openLocker(t, engine, Options{TTL: time.Hour})
		owners := plant(t, pool, engine, l, n)
		before := memory()
		leases := hold(t, l, owners)
		each := (memory() - before) / int64(n)
		seen.take()
		begun := time.Now()
		l.leases.renew(t.Context(), leases)
		took := time.Since(begun)
		sent := sum(seen.take())
		t.Logf("%d leases renewed with %d statements in %v; %d bytes a lease", n, sent, took.Round(time.Millisecond), each)
		// On MySQL and MariaDB each has one before it, which sets its isolation.
		if most := 2 * ((n + renewBatch - 1) / renewBatch); sent > most || sent > 20 {
			t.Errorf("%d statements, want at most %d", sent, most)
		}
		for _, lease := range leases {
			if l.leases.mu.Lock(); !lease.until.After(begun.Add(50 * time.Minute)) {
				t.Error("a lease was not renewed")
			}
			l.leases.mu.Unlock()
		}
		if each > 4<<10 {
			t.Errorf("%d bytes a lease", each)
		}
		l.leases.drop(leases)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// slow is a database that takes too long for statements of many parameters.
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

// TestRenewalThatTakesTooLong: a batch that does not come to its end in time is
// not sent again as it was; all leases are renewed by the second try.
func TestRenewalThatTakesTooLong(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, pool, _ := openLocker(t, engine, Options{TTL: time.Hour})
		leases := hold(t, l, plant(t, pool, engine, l, renewBatch))
		s := l.leases.store
		onConn := s.onConn
		var sizes []int
		var mu sync.Mutex
		s.onConn = func(ctx context.Context, before string, f func(q core.Querier) error) error {
			return onConn(ctx, before, func(q core.Querier) error { return f(slow{q, 700, &sizes, &mu}) })
		}
		begun := time.Now()
		for range 2 {
			l.leases.renew(t.Context(), leases)
		}
		for _, lease := range leases {
			l.leases.mu.Lock()
			if !lease.live || lease.renewError != nil || !lease.until.After(begun.Add(50*time.Minute)) {
				t.Errorf("a lease was not renewed: %v", lease.renewError)
				l.leases.mu.Unlock()
				break
			}
			l.leases.mu.Unlock()
		}
		t.Logf("parameters of the statements: %v", sizes)
		if size := l.leases.renewSize.Load(); size < renewBatch/renewLess || size == renewBatch {
			t.Errorf("the next batches are of %d", size)
		}
		l.leases.drop(leases)
		s.onConn = onConn
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// observed counts the statements of a Locker by name.
type observed struct {
	mu    sync.Mutex
	n     map[string]int
	after func(name string) // called after each statement, if set
}

func (o *observed) take() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.n
	o.n = map[string]int{}
	return n
}

// then sets what runs after each statement.
func (o *observed) then(after func(name string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.after = after
}

func openLocker(t *testing.T, engine dbtest.Engine, o Options) (*Locker[*sql.Tx], *sql.DB, *observed) {
	t.Helper()
	pool := dbtest.OpenSQL(t, dbtest.DSN(t, engine))
	if err := migrations.Up(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	seen := &observed{n: map[string]int{}}
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		seen.mu.Lock()
		if !strings.HasPrefix(s.Name, "admission") { // sent once for each connection, whenever the pool opens one
			seen.n[s.Name]++
		}
		after := seen.after
		seen.mu.Unlock()
		if after != nil {
			after(s.Name)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	return l, pool, seen
}

// TestRenewalStatements checks that leases that are due together are renewed 2,048 to a
// statement. On MySQL and MariaDB another statement before it sets the isolation level.
func TestRenewalStatements(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		l, pool, seen := openLocker(t, engine, Options{TTL: time.Hour})
		const n = 2100
		var wg sync.WaitGroup
		for part := range 16 {
			wg.Go(func() {
				for i := part; i < n; i += 16 {
					if _, err := l.Acquire(t.Context(), fmt.Sprintf("key %d", i)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		k := l.leases.k
		k.Mu.Lock()
		held, _ := k.Held()
		k.Mu.Unlock()
		for count, want := range map[int]int{1: 1, 2000: 1, n: 2} {
			before := sumOfExpiries(t, pool)
			seen.take()
			k.RenewNow(t.Context(), slices.Clone(held[:count]))
			got := seen.take()
			delete(got, "locks.rivals") // once after a lease begins
			wanted := map[string]int{"locks.renew": want}
			if engine == dbtest.MySQL || engine == dbtest.MariaDB {
				wanted["before"] = want
			}
			if !maps.Equal(got, wanted) {
				t.Errorf("%d leases took %v, want %v", count, got, wanted)
			}
			if after := sumOfExpiries(t, pool); after <= before {
				t.Errorf("%d leases: no expiry moved", count)
			}
		}
		var early int
		if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM holdfast_locks WHERE expires_at = granted_at + 3600000000`).Scan(&early); err != nil || early != 0 {
			t.Errorf("%d leases were not renewed, %v", early, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel() // ended, because Close would otherwise release them one by one
		if err := l.Close(ended); err != nil {
			t.Error(err)
		}
	})
}

// sumOfExpiries adds up expiry minus grant, in microseconds, so that the sum does not
// overflow.
func sumOfExpiries(t *testing.T, pool *sql.DB) (sum int64) {
	t.Helper()
	if err := pool.QueryRowContext(t.Context(), `SELECT SUM(expires_at - granted_at) FROM holdfast_locks`).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestMemoryOfKeys checks that a key without holders and waiters uses no memory, for every way
// in which a wait or a lease can end.
func TestMemoryOfKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, _, _ := openLocker(t, engine, Options{TTL: time.Minute})
		other, err := New(t.Context(), l.db, Options{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		blocker, err := other.Acquire(t.Context(), "held by another")
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				key := fmt.Sprintf("key %d", i%5)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*10*time.Millisecond)
				defer cancel()
				switch i % 4 {
				case 0: // some get the lock in time, some do not
					_ = l.Do(ctx, key, func(context.Context, *Lease) error { time.Sleep(time.Millisecond); return nil })
				case 1:
					if lease, err := l.TryAcquire(t.Context(), key); err == nil {
						_ = lease.Release(t.Context())
						_ = lease.Release(t.Context())
					}
				case 2: // expires, and is released late
					lease, err := l.Acquire(t.Context(), key, AcquireOptions{TTL: minTTL, NoRenewal: true})
					if err != nil {
						t.Error(err)
						return
					}
					<-lease.Context().Done()
					_ = lease.Release(t.Context())
				case 3: // waits for another process until its context ends
					if _, err := l.Acquire(ctx, "held by another"); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		m := l.leases
		empty := func() (string, bool) {
			m.k.Mu.Lock()
			defer m.k.Mu.Unlock()
			held, renewals := m.k.Held()
			polls := m.waits.Len()
			return fmt.Sprintf("%d queues, %d leases, %d renewals, %d polls", len(m.queues), len(held), renewals, polls),
				len(m.queues)+len(held)+renewals+polls == 0
		}
		for end := time.Now().Add(dbtest.Hang); ; time.Sleep(10 * time.Millisecond) {
			left, ok := empty()
			if ok {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("left behind: %s", left)
			}
		}
		for _, err := range []error{blocker.Release(t.Context()), l.Close(t.Context()), other.Close(t.Context())} {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

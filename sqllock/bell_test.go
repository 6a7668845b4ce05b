package sqllock_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jmoiron/sqlx"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/conformance"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

func TestBell(t *testing.T) {
	t.Parallel()
	bells[*sql.Tx](t, conformance.SQL())
	bells[*sqlx.Tx](t, conformance.SQLX())
	bells[pgx.Tx](t, conformance.Pgx())
}

// counter counts statements by their names.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) observe(_ context.Context, s holdfast.Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[s.Name]++
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func bells[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	t.Run(h.Name, func(t *testing.T) {
		t.Parallel()
		count := &counter{n: map[string]int{}}
		conformance.Run(t, conformance.Only(h, dbtest.Postgres), func(e *conformance.Env[Tx]) { rung(e, count) }, holdfast.WithObserver(count.observe))
	})
}

// rung: a release wakes who waits in another process, is announced only when
// somebody does, and those who wait hardly look meanwhile.
func rung[Tx any](e *conformance.Env[Tx], count *counter) {
	var lockers []*sqllock.Locker[Tx]
	for range 3 {
		l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { _ = l.Close(context.Background()) })
		l.LookEvery(time.Hour) // so that nothing but the bell wakes it
		lockers = append(lockers, l)
	}
	holder, err := lockers[0].Acquire(e.Ctx, "k")
	if err != nil {
		e.Fatal(err)
	}
	order := make(chan int, 2)
	var running sync.WaitGroup
	for i := 1; i < 3; i++ {
		running.Go(func() {
			lease, err := lockers[i].Acquire(e.Ctx, "k")
			if err != nil {
				e.Error(err)
				return
			}
			order <- i
			if err := lease.Release(e.Ctx); err != nil {
				e.Error(err)
			}
		})
	}
	e.Eventually("both listen", func() bool { return lockers[1].Hears() && lockers[2].Hears() })
	e.Eventually("both are seen", func() bool {
		i, _, err := lockers[0].Inspect(e.Ctx, "k")
		return err == nil && i.Waiting == 2
	})
	before := count.of("locks.waits")
	time.Sleep(2 * time.Second)
	if n := count.of("locks.waits") - before; n > 30 { // what the doubling still does
		e.Errorf("looked %d times in 2 s", n)
	}
	rings := count.of("locks.ring")
	if err := holder.Release(e.Ctx); err != nil {
		e.Fatal(err)
	}
	running.Wait()
	if n := count.of("locks.ring") - rings; n < 1 || n > 2 {
		e.Errorf("%d rings for two releases with waiters", n)
	}
	got := []int{<-order, <-order}
	slices.Sort(got)
	if !slices.Equal(got, []int{1, 2}) {
		e.Errorf("got %v", got)
	}
	e.Eventually("nobody is seen to wait", func() bool {
		i, _, err := lockers[0].Inspect(e.Ctx, "k")
		return err == nil && i.Waiting == 0
	})
	rings = count.of("locks.ring")
	for range 10 {
		lease, err := lockers[0].Acquire(e.Ctx, "nobody waits")
		if err != nil {
			e.Fatal(err)
		}
		if err := lease.Release(e.Ctx); err != nil {
			e.Fatal(err)
		}
	}
	if n := count.of("locks.ring") - rings; n != 0 {
		e.Errorf("%d rings though nobody waits", n)
	}
}

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
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

func TestBell(t *testing.T) {
	t.Parallel()
	bells[*sql.Tx](t, conformance.SQL())
	bells[*sqlx.Tx](t, conformance.SQLX())
	bells[pgx.Tx](t, conformance.Pgx())
}

// counter counts statements by name.
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
		conformance.Run(t, conformance.Only(h, dbtest.Postgres), func(e *conformance.Env[Tx]) { rung(e, count) }, holdfast.Options{Observers: []holdfast.Observer{count.observe}})
	})
}

// rung checks that a release wakes a waiter in another process, that notifications are sent
// only while a process waits, and that waiters hardly poll in between.
func rung[Tx any](e *conformance.Env[Tx], count *counter) {
	var lockers []*sqllock.Locker[Tx]
	for range 3 {
		l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { _ = l.Close(context.Background()) })
		l.PollEvery(time.Hour) // so that only a notification wakes it
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
	e.Eventually("both listen", func() bool { return lockers[1].Listening() && lockers[2].Listening() })
	e.Eventually("both are seen", func() bool {
		i, _, err := lockers[0].Inspect(e.Ctx, "k")
		return err == nil && i.Waiting == 2
	})
	before := count.of("locks.waits")
	time.Sleep(2 * time.Second)
	if n := count.of("locks.waits") - before; n > 30 { // the polls before the doubling intervals are long
		e.Errorf("looked %d times in 2 s", n)
	}
	sent := count.of("locks.notify")
	if err := holder.Release(e.Ctx); err != nil {
		e.Fatal(err)
	}
	running.Wait()
	// The last release may still see the waiting call before it, which takes its row away later.
	if n := count.of("locks.notify") - sent; n < 1 || n > 3 {
		e.Errorf("%d sent for three releases", n)
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
	sent = count.of("locks.notify")
	for range 10 {
		lease, err := lockers[0].Acquire(e.Ctx, "nobody waits")
		if err != nil {
			e.Fatal(err)
		}
		if err := lease.Release(e.Ctx); err != nil {
			e.Fatal(err)
		}
	}
	if n := count.of("locks.notify") - sent; n != 0 {
		e.Errorf("%d sent though nobody waits", n)
	}
}

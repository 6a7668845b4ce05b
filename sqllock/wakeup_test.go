package sqllock_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestHandOverAtScale measures the time from a release until a waiter in another process has
// the lock. It only requires that every waiter gets the lock.
func TestHandOverAtScale(t *testing.T) { //nolint:paralleltest // it measures
	dbtest.OnlyAtScale(t)
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		one, two := e.Locker(), e.Locker()
		holder, waiter := one, two
		var free []time.Duration
		for i := range rounds {
			lease, err := holder.Acquire(e.Ctx, "key")
			if err != nil {
				e.Fatal(err)
			}
			got := make(chan time.Time, 1)
			next := make(chan *sqllock.Lease, 1)
			go func() {
				l, err := waiter.Acquire(e.Ctx, "key")
				got <- time.Now()
				if err != nil {
					e.Error(err)
				}
				next <- l
			}()
			time.Sleep(time.Duration(30+i%7*11) * time.Millisecond) // work of varying length
			released := time.Now()
			if err := lease.Release(e.Ctx); err != nil {
				e.Fatal(err)
			}
			free = append(free, (<-got).Sub(released))
			if l := <-next; l == nil || l.Release(e.Ctx) != nil {
				e.Fatal("it was not handed over")
			}
			holder, waiter = waiter, holder
		}
		slices.Sort(free)
		e.Logf("%d hand-overs between processes: median %v, p90 %v", rounds, free[len(free)/2].Round(100*time.Microsecond), free[len(free)*9/10].Round(100*time.Microsecond))
	})
}

package sqllock_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

// TestWatchIsWoken checks that a release notifies a watch and an observer, which do not read by
// themselves again, whether another process or their own releases; and that they count for no waiter.
func TestWatchIsWoken(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Only(conformance.SQL(), dbtest.Postgres), func(e *conformance.Env[*sql.Tx]) {
		other, l := e.Locker(), e.Locker()
		l.WatchEvery(time.Hour)
		lasting := func() { e.Must(`UPDATE holdfast_waiters SET expires_at = expires_at + 3600000000`) }
		releases := []*sqllock.Locker[*sql.Tx]{other, l, other}
		release := func() {
			lease := e.MustAcquire(releases[0], "key")
			if i, _, err := l.Inspect(e.Ctx, "key"); err != nil || i.Waiting != 0 {
				e.Errorf("it counts as %d waiters, %v", i.Waiting, err)
			}
			e.MustRelease(lease)
			releases = releases[1:]
		}
		for event, err := range l.Watch(e.Ctx, "key") {
			e.Check(err)
			if event.Kind == sqllock.EventPresent {
				e.Eventually("it listens", l.Listening)
				lasting()
			} else if event.Kind != sqllock.EventReleased {
				continue
			}
			if len(releases) == 0 {
				break
			}
			release()
		}
		// An observer sees a leader at its reads only, so that it reads once more for the end.
		leader := e.MustAcquire(other, "leader")
		first := true
		for info, err := range election.New(l, "leader").Observe(e.Ctx) {
			e.Check(err)
			if !first {
				if info.Held {
					e.Errorf("got %+v", info)
				}
				break
			}
			first = false
			lasting()
			e.MustRelease(leader)
		}
	})
}

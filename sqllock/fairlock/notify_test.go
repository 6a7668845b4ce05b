package fairlock_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestNotified checks that a release wakes the process of the next ticket, which does not poll.
func TestNotified(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Only(conformance.Pgx(), dbtest.Postgres), func(e *conformance.Env[pgx.Tx]) {
		const rounds = 5
		lockers := e.Lockers(2, sqllock.Options{})
		one, two := fairlock.New(lockers[0]), fairlock.New(lockers[1])
		for _, l := range []*fairlock.Locker[pgx.Tx]{one, two} {
			l.PollRarely(time.Hour)
		}
		held, err := one.Acquire(e.Ctx, "key")
		e.Check(err)
		for range rounds {
			one, two = two, one // one waits for the lease of two
			next := make(chan *sqllock.Lease, 1)
			go func() {
				lease, err := one.Acquire(e.Ctx, "key")
				if err != nil {
					e.Error(err)
				}
				next <- lease
			}()
			e.Eventually("it waits and listens", one.Listens)
			e.MustRelease(held)
			if held = <-next; held == nil {
				return
			}
		}
		e.MustRelease(held)
	})
}

package holdfastgocron_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/holdfastgocron"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

func TestMain(m *testing.M) {
	if os.Getenv(foreignVariable) != "" {
		os.Exit(m.Run()) // its programs go on
	}
	dbtest.VerifyNoLeaks(m)
}

type locks = sqllock.Locker[*sql.Tx]

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// each runs f on each engine; replica makes the Locker of one more program.
func each(t *testing.T, f func(t *testing.T, replica func() *locks)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		pool := dbtest.OpenSQL(t, dbtest.DSN(t, e))
		must(t, migrations.Up(t.Context(), pool))
		f(t, func() *locks {
			db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
			must(t, err)
			l, err := sqllock.New(t.Context(), db, sqllock.Options{TTL: time.Minute})
			must(t, err)
			t.Cleanup(func() { must(t, l.Close(context.Background())) })
			return l
		})
	})
}

// TestLocker checks that a second replica is refused while the job runs, and for the least time after its start.
func TestLocker(t *testing.T) {
	each(t, func(t *testing.T, replica func() *locks) {
		ctx, a, b := t.Context(), replica(), replica()
		for _, least := range []time.Duration{0, time.Hour} {
			job := "none"
			if least > 0 {
				job = "an hour"
			}
			held, err := holdfastgocron.NewLocker(a, least).Lock(ctx, job)
			must(t, err)
			other := holdfastgocron.NewLocker(b, least)
			if _, err := other.Lock(ctx, job); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("%s, while the job runs: %v", job, err)
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			must(t, held.Unlock(ended))
			switch again, err := other.Lock(ctx, job); {
			case least == 0:
				must(t, err)
				must(t, again.Unlock(ctx))
			case !errors.Is(err, sqllock.ErrHeld):
				t.Errorf("%s, after a short job: %v", job, err)
			}
		}
		held, err := holdfastgocron.NewLocker(a, 50*time.Millisecond).Lock(ctx, "a moment")
		must(t, err)
		must(t, held.Unlock(ctx))
		lease, err := b.Acquire(ctx, "a moment") // waits for the release
		must(t, err)
		must(t, lease.Release(ctx))
	})
}

// TestElector checks that one of two leads, that a scheduler runs the jobs of the leader alone, and that the other one
// leads once the first has ended.
func TestElector(t *testing.T) {
	each(t, func(t *testing.T, replica func() *locks) {
		type member struct {
			*holdfastgocron.Elector

			end  context.CancelCauseFunc
			done chan error
			ran  atomic.Int64
		}
		asked := make(chan struct{}, 1)
		join := func() *member {
			m := &member{Elector: holdfastgocron.NewElector(election.New(replica(), "scheduler")), done: make(chan error, 1)}
			if err := m.IsLeader(t.Context()); err == nil {
				t.Errorf("before Run: %v", err)
			}
			ctx, end := context.WithCancelCause(t.Context())
			m.end = end
			go func() { m.done <- m.Run(ctx, []byte("replica")) }()
			s, err := gocron.NewScheduler(gocron.WithDistributedElector(m))
			must(t, err)
			_, err = s.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() {
				m.ran.Add(1)
				select {
				case asked <- struct{}{}:
				default:
				}
			}))
			must(t, err)
			s.Start()
			t.Cleanup(func() { must(t, s.Shutdown()) })
			return m
		}
		leads := func(m *member) {
			for m.IsLeader(t.Context()) != nil || m.ran.Load() == 0 {
				<-asked
			}
		}
		first := join()
		leads(first)
		second := join()
		if err := second.IsLeader(t.Context()); err == nil || second.ran.Load() != 0 {
			t.Errorf("beside a leader: %v, %d runs", err, second.ran.Load())
		}
		why := errors.New("the program ends")
		first.end(why)
		if err := <-first.done; !errors.Is(err, why) {
			t.Errorf("Run: %v", err)
		}
		if err := first.IsLeader(t.Context()); err == nil {
			t.Errorf("after Run: %v", err)
		}
		leads(second)
		second.end(why)
		<-second.done
	})
}

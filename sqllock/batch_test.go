package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestGathered checks that simultaneous requests of many goroutines go in few statements and
// get the same answers as alone. The keys are new, free, held, or free but locked by a guard.
// The released terms are still the row's, taken away, or locked by a guard.
func TestGathered(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		guarded := engine != dbtest.SQLite // SQLite has one writer, and a try does not wait for it
		var statements, crowd atomic.Int32 // crowd is how many requests come at once
		var l *sqllock.Locker[*sql.Tx]
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			switch s.Name {
			case "locks.make", "locks.take", "locks.granted", "locks.release", "locks.released":
				statements.Add(1)
				if n := int(crowd.Load()); n > 0 { // the first statements take until all have come
					dbtest.Eventually(t, "the others gather", func() bool {
						waiting, alone := l.Gathering()
						return waiting >= n-alone
					})
					crowd.Store(0)
				}
			}
		}}})
		locker := func(o sqllock.Options) *sqllock.Locker[*sql.Tx] {
			l, err := sqllock.New(e.Ctx, e.DB, o)
			if err != nil {
				e.Fatal(err)
			}
			l.GatherFor(dbtest.Hang)
			e.Cleanup(func() { _ = l.Close(context.Background()) })
			return l
		}
		l = locker(sqllock.Options{TTL: time.Hour})
		other := locker(sqllock.Options{TTL: time.Hour, Holder: "other"})
		const n = 120
		kind := func(i int) string { return fmt.Sprintf("%s %d", [...]string{"new", "free", "held", "guarded"}[i%4], i) }
		var tokens [n]int64 // so far
		var guards []*sql.Tx
		defer func() {
			for _, tx := range guards {
				_ = e.End(e.Ctx, tx, false)
			}
		}()
		for i := range n {
			if i%4 == 0 || i%4 == 3 && (i > 12 || !guarded) { // each guard needs a connection
				continue
			}
			var short []sqllock.AcquireOptions
			if i%4 == 3 {
				short = []sqllock.AcquireOptions{{TTL: time.Second, NoRenewal: true}}
			}
			lease, err := other.Acquire(e.Ctx, kind(i), short...)
			if err != nil {
				e.Fatal(err)
			}
			tokens[i] = lease.Token()
			if i%4 == 3 {
				tx, err := e.Begin(e.Ctx, sql.LevelDefault)
				if err == nil {
					err = other.Guard(e.Ctx, tx, lease.Term())
				}
				if err != nil {
					e.Fatal(err)
				}
				guards = append(guards, tx)
				continue
			}
			if i%4 == 1 {
				if err := lease.Release(e.Ctx); err != nil {
					e.Fatal(err)
				}
			}
		}
		for i := range n {
			if i%4 == 3 && tokens[i] > 0 {
				e.Eventually("the guarded lease ends", func() bool {
					seen, _, err := l.Inspect(e.Ctx, kind(i))
					return err == nil && !seen.Held
				})
			}
		}
		for round := range 3 {
			statements.Store(0)
			var leases [n]*sqllock.Lease
			var all sync.WaitGroup
			crowd.Store(n)
			for i := range n {
				all.Go(func() {
					lease, err := l.TryAcquire(e.Ctx, kind(i))
					var held *sqllock.HeldError
					switch {
					case i%4 == 2 || i%4 == 3 && tokens[i] > 0 && lease == nil:
						if !errors.As(err, &held) || held.Holder != "other" || held.Token != tokens[i] {
							e.Errorf("%s: %v", kind(i), err)
						}
					case err != nil:
						e.Errorf("%s: %v", kind(i), err)
					case lease.Token() <= tokens[i]:
						e.Errorf("%s: token %d after %d", kind(i), lease.Token(), tokens[i])
					default:
						leases[i], tokens[i] = lease, lease.Token()
					}
				})
			}
			all.Wait()
			granted, taken := 0, map[int]bool{}
			for i, lease := range leases {
				if lease == nil {
					continue
				}
				granted++
				if seen, _, err := l.Inspect(e.Ctx, kind(i)); err != nil || seen.Token != tokens[i] || seen.Remaining < 50*time.Minute {
					e.Errorf("%s: %+v, %v", kind(i), seen, err)
				}
			}
			for i, lease := range leases {
				if lease != nil && i%20 == round {
					if had, err := other.ForceRelease(e.Ctx, kind(i), 0, holdfast.Actor{By: "test", Reason: "a test"}); !had || err != nil {
						e.Fatalf("%s: %v, %v", kind(i), had, err)
					}
					taken[i] = true
				}
			}
			crowd.Store(int32(granted))
			for i, lease := range leases {
				if lease != nil {
					all.Go(func() {
						if err := lease.Release(e.Ctx); taken[i] != errors.Is(err, sqllock.ErrLost) || err != nil && !taken[i] {
							e.Errorf("%s, taken away is %t: %v", kind(i), taken[i], err)
						}
					})
				}
			}
			all.Wait()
			for i, lease := range leases {
				if lease == nil {
					continue
				}
				if seen, _, err := l.Inspect(e.Ctx, kind(i)); err != nil || seen.Remaining != 0 {
					e.Errorf("%s, released: %+v, %v", kind(i), seen, err)
				}
			}
			if sent := int(statements.Load()); sent > (n+granted)*3/4 {
				e.Errorf("round %d: %d statements for %d tries and %d releases", round, sent, n, granted)
			} else {
				e.Logf("round %d: %d statements for %d tries and %d releases", round, sent, n, granted)
			}
		}
	})
}

// rolledBackError is an error that says, in each engine's words, that a statement was rolled back. A program's may be the
// cause for which it cancels a context.
type rolledBackError struct{ error }

func (rolledBackError) SQLState() string { return "40001" }
func (rolledBackError) Code() int        { return 5 }
func (rolledBackError) Unwrap() error    { return &mysql.MySQLError{Number: 1213} }

// TestLeftInABatch cancels calls whose statement is under way for all of them. What it grants them is free at once, whatever
// the cause of their context is.
func TestLeftInABatch(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		const n = 60
		type mine struct{}
		within, cancel := context.WithCancelCause(context.WithValue(t.Context(), mine{}, true))
		defer cancel(nil)
		var l *sqllock.Locker[*sql.Tx]
		var left, released atomic.Int32
		gather := sync.OnceFunc(func() {
			dbtest.Eventually(t, "the others gather", func() bool {
				waiting, alone := l.Gathering()
				return waiting >= n-alone
			})
		})
		leave := sync.OnceFunc(func() {
			cancel(rolledBackError{errors.New("elsewhere")})
			dbtest.Eventually(t, "the calls leave", func() bool { return left.Load() == n })
			if engine != dbtest.SQLite { // the batch holds its only writer
				dbtest.Eventually(t, "some are released before the batch goes on", func() bool { return released.Load() >= 3 })
			}
		})
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(ctx context.Context, s holdfast.Statement) {
			switch {
			case s.Name == "locks.release":
				released.Add(1)
			case s.Name != "locks.make" && s.Name != "locks.take":
			case ctx.Value(mine{}) != nil:
				gather()
			case within.Err() == nil: // that of a batch, which outlives its calls
				leave()
			}
		}}})
		locker := func() *sqllock.Locker[*sql.Tx] {
			l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
			e.Check(err)
			l.GatherFor(dbtest.Hang)
			e.Cleanup(func() { _ = l.Close(context.Background()) })
			return l
		}
		l = locker()
		var all sync.WaitGroup
		var leases [n]*sqllock.Lease
		for i := range n {
			all.Go(func() {
				leases[i], _ = l.TryAcquire(within, fmt.Sprint(i))
				left.Add(1)
			})
		}
		all.Wait()
		refused := 0
		for _, lease := range leases {
			if lease == nil {
				refused++
				continue
			}
			e.Check(lease.Release(e.Ctx))
		}
		if refused == 0 {
			t.Error("no call left a batch")
		}
		other := locker()
		for i := range n {
			e.Eventually(fmt.Sprint(i, " is free"), func() bool {
				lease, err := other.TryAcquire(e.Ctx, fmt.Sprint(i))
				if err == nil {
					_ = lease.Release(e.Ctx)
				}
				return err == nil
			})
		}
	})
}

package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// asked collects the names of Holdfast's statements.
type asked struct {
	mu    sync.Mutex
	names []string
}

func (a *asked) saw(_ context.Context, s holdfast.Statement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !strings.HasPrefix(s.Name, "admission") { // sent once for each connection, whenever the pool opens one
		a.names = append(a.names, s.Name)
	}
}

func (a *asked) take() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	names, a.names = a.names, nil
	return names
}

// TestTicketStatements checks which statements a call of the queueing locks sends without
// contention, and how many round trips those take: a transaction to join, and one statement to
// leave. The driver of MySQL and MariaDB takes two round trips to begin at an isolation level.
// SQLite's statements are calls in the process.
func TestTicketStatements(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			dbtest.Needs(t, engine, dbtest.OneStatement)
			t.Parallel()
			w, a := new(wire), new(asked)
			h := w.handle(1)
			if engine == dbtest.SQLite { // the wire's connections have no commit hook
				h = conformance.SQL()
			}
			countClaims(conformance.New(t, h, engine, holdfast.Options{Observers: []holdfast.Observer{a.saw}}), w, a)
			if engine == dbtest.Postgres {
				t.Run("pgx", func(t *testing.T) {
					t.Parallel()
					w, a := new(wire), new(asked)
					countClaims(conformance.New(t, w.pgx(), engine, holdfast.Options{Observers: []holdfast.Observer{a.saw}}), w, a)
				})
			}
		})
	}
}

func countClaims[Tx any](e *conformance.Env[Tx], w *wire, a *asked) {
	l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = l.Close(e.Ctx) }()
	s, err := fairlock.New(l).Semaphore("key", 3)
	if err != nil {
		e.Fatal(err)
	}
	var lease *sqllock.Lease
	keep := func(got *sqllock.Lease, err error) error {
		lease = got
		return err
	}
	acquire := func() error { return keep(fairlock.New(l).Acquire(e.Ctx, "key")) }
	release := func() error { return lease.Release(e.Ctx) }
	begin, end, trips := []string{"begin"}, []string{"commit"}, 0
	switch e.Engine {
	case dbtest.MySQL, dbtest.MariaDB:
		begin, end, trips = []string{"set", "begin", "mark"}, []string{"check", "commit", "unset"}, 1
	case dbtest.SQLite:
		begin, end = []string{"remember", "set", "begin"}, []string{"commit", "unset"}
	}
	tx := func(names ...string) []string { return slices.Concat(begin, names, end) }
	join := tx("locks.draw", "locks.enter")
	undone := slices.Clone(tx("locks.draw")) // rolled back, and therefore without a check
	undone = slices.DeleteFunc(undone, func(name string) bool { return name == "check" })
	undone[slices.Index(undone, "commit")] = "rollback"

	for _, round := range []string{"the driver prepares", "count"} {
		e.Must(`DELETE FROM holdfast_locks`)
		for _, step := range []struct {
			what  string
			want  []string
			trips int // beyond one for each statement
			do    func() error
		}{
			{"acquire a key that never was", slices.Concat(undone, []string{"locks.anchor"}, join), 2 * trips, acquire},
			{"release", []string{"locks.leave"}, 0, release},
			{"acquire", join, trips, acquire},
			{"try a held key", []string{"locks.look in line"}, 0, func() error {
				if _, err := fairlock.New(l).TryAcquireShared(e.Ctx, "key"); !errors.Is(err, sqllock.ErrHeld) {
					return errors.Join(err, errors.New("it is held"))
				}
				return nil
			}},
			{"release again", []string{"locks.leave"}, 0, release},
			{"try a free key", slices.Concat([]string{"locks.look in line"}, join), trips, func() error { return keep(fairlock.New(l).TryAcquireShared(e.Ctx, "key")) }},
			{"release what is shared", []string{"locks.leave"}, 0, release},
			{"permits, on a key of their own", slices.Concat(undone, []string{"locks.anchor"}, join), 2 * trips, func() error { return keep(s.Acquire(e.Ctx, 2)) }},
			{"release permits", []string{"locks.leave"}, 0, release},
		} {
			w.take()
			a.take()
			if err := step.do(); err != nil {
				e.Fatalf("%s: %v", step.what, err)
			}
			names := a.take()
			_, writes := w.take()
			if round != "count" {
				continue
			}
			if !slices.Equal(names, step.want) {
				e.Errorf("%s: %q, want %q", step.what, names, step.want)
			}
			if want := len(step.want) + step.trips; e.Engine != dbtest.SQLite && writes != want {
				e.Errorf("%s: %d round trips, want %d", step.what, writes, want)
			}
		}
	}
}

// TestTicketHandOver counts the statements of a hand-over between processes and within one:
// the leaver's statement, the next holder's statement, and polls.
func TestTicketHandOver(t *testing.T) {
	dbtest.NotUnderRace(t, "it counts statements")
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		a := new(asked)
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{a.saw}})
		const n = 20
		for _, processes := range []int{1, 2} {
			var lockers []*sqllock.Locker[*sql.Tx]
			for range processes {
				l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: dbtest.Hang}) // no renewal is due
				if err != nil {
					e.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Close(context.Background()) })
				lockers = append(lockers, l)
			}
			first, err := fairlock.New(lockers[0]).Acquire(e.Ctx, "key")
			if err != nil {
				e.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					if err := fairlock.New(lockers[i%processes]).Do(e.Ctx, "key", func(context.Context, *sqllock.Lease) error { return nil }); err != nil {
						e.Error(err)
					}
				})
			}
			e.Eventually("all stand in line", func() bool { return e.Int(`SELECT COUNT(*) FROM holdfast_tickets`) == n+1 })
			a.take()
			start := time.Now()
			if err := first.Release(e.Ctx); err != nil {
				e.Fatal(err)
			}
			wg.Wait()
			took := time.Since(start)
			count := map[string]int{}
			// Where a release grants, a look and a confirm of the waiter are rare. A look may grant a ticket
			// before the answer to its confirm is back.
			grants := access.Of(e.DB).Dialect.Tickets.ReleaseGrants
			e.Eventually("all statements are answered", func() bool {
				for _, name := range a.take() {
					switch name {
					case "commit", "check", "unset": // sent by the last one to join, whose ticket can be visible before its COMMIT returns
					default:
						count[name]++
					}
				}
				return count["locks.leave"] > n && (grants || count["locks.confirm"] >= n)
			})
			e.Logf("%d processes: %.1f looks and %v a hand-over", processes, float64(count["locks.places"])/n, took/n)
			looks, leaves, confirms := count["locks.places"], count["locks.leave"], count["locks.confirm"]
			delete(count, "locks.places")
			delete(count, "locks.leave")
			delete(count, "locks.confirm")
			delete(count, "locks.notify") // of a process that begins to listen
			if leaves != n+1 || len(count) != 0 || !grants && (confirms != n || looks < n) {
				e.Errorf("%d processes: %d of leave, %d of confirm, %d looks and %v, want %d of leave", processes, leaves, confirms, looks, count, n+1)
			}
			if grants && processes == 1 && confirms > 1 {
				e.Errorf("one process: %d of confirm, though each release grants to the next", confirms)
			}
		}
	})
}

package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestStatements counts the statements of each call at the driver, and the round trips as
// writes to the network. MySQL and MariaDB run with interpolateParams, and pgx with a warm
// statement cache. SQLite's statements are calls within the process.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine)+" sql", func(t *testing.T) {
			dbtest.Needs(t, engine, dbtest.OneStatement)
			t.Parallel()
			w := new(wire)
			count(conformance.New(t, w.handle(1), engine), w)
		})
		if engine == dbtest.Postgres {
			t.Run("postgres pgx", func(t *testing.T) {
				t.Parallel()
				w := new(wire)
				count(conformance.New(t, w.pgx(), engine), w)
			})
		}
	}
}

func count[Tx any](e *conformance.Env[Tx], w *wire) {
	countSteps(e, w, "warm", false) // prepares each statement once, on the only connection
	countSteps(e, w, "key", true)
}

// counts is the number of statements that a call sends, by engine.
type counts map[dbtest.Engine]int

func countSteps[Tx any](e *conformance.Env[Tx], w *wire, key string, check bool) {
	var lockers [3]*sqllock.Locker[Tx] // three processes
	for i := range lockers {
		l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
		if err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() { _ = l.Close(context.Background()) })
		l.LooksLater()
		lockers[i] = l
	}
	var lease, next *sqllock.Lease
	acquire := func(process int) func() error {
		return func() (err error) {
			lease, err = lockers[process].Acquire(e.Ctx, key)
			return err
		}
	}
	held := func() error {
		if _, err := lockers[1].TryAcquire(e.Ctx, key); !errors.Is(err, sqllock.ErrHeld) {
			return errors.New("it should be held")
		}
		return nil
	}
	release := func() error { return lease.Release(e.Ctx) }
	one := counts{dbtest.Postgres: 1, dbtest.MySQL: 1, dbtest.MariaDB: 1, dbtest.SQLite: 1}
	// SQLite's wait for the write lock is bounded, and the bound is restored afterwards.
	ask := counts{dbtest.Postgres: 1, dbtest.MySQL: 1, dbtest.MariaDB: 1, dbtest.SQLite: 1 + 3}
	for _, step := range []struct {
		what string
		want counts
		do   func() error
	}{
		{"acquire a key that never was", ask, acquire(0)},
		// The insert finds the row, the takeover finds it held, and a read returns the holder.
		// MariaDB's upsert returns the holder itself; SQLite's does not.
		{"try a held key that another process made", counts{dbtest.Postgres: 3, dbtest.MySQL: 3, dbtest.MariaDB: 1, dbtest.SQLite: 2 + 3}, held},
		{"try it again", counts{dbtest.Postgres: 2, dbtest.MySQL: 2, dbtest.MariaDB: 2, dbtest.SQLite: 2 + 3}, held},
		{"release", one, release},
		{"acquire a key that this process used", ask, acquire(0)},
		{"hand over within the process", one, func() error {
			for {
				start := time.Now()
				if err := errors.Join(release(), acquire(0)()); err != nil {
					return err
				}
				got := make(chan error)
				go func() {
					var err error
					next, err = lockers[0].Acquire(e.Ctx, key)
					got <- err
				}()
				e.Eventually("it is in the queue", func() bool { return lockers[0].Waiting() > 0 })
				w.take()
				err := errors.Join(release(), <-got)
				if err != nil || time.Since(start) < time.Second {
					return err
				}
				lease = next // the local turn had ended, so the lock was offered to other processes first
			}
		}},
		{"release what was handed over", one, func() error { return next.Release(e.Ctx) }},
		// This process uses an existing row for the first time. MySQL and PostgreSQL have no
		// upsert that skips a guarded row, so an insert runs first and does nothing, and a second
		// statement takes the lock over.
		{"acquire a key that another process used", counts{dbtest.Postgres: 2, dbtest.MySQL: 2, dbtest.MariaDB: 1, dbtest.SQLite: 1 + 3}, acquire(2)},
		{"release it", one, release},
		{"acquire it again", ask, acquire(2)},
		{"release it again", one, release},
	} {
		w.take()
		if err := step.do(); err != nil {
			e.Fatalf("%s: %v", step.what, err)
		}
		calls, writes := w.take()
		if !check {
			continue
		}
		want := step.want[e.Engine.Kin()]
		if len(calls) != want {
			e.Errorf("%s: %d statements, want %d: %v", step.what, len(calls), want, calls)
		}
		if e.Engine == dbtest.SQLite {
			want = 0
		}
		if writes != want {
			e.Errorf("%s: %d round trips, want %d", step.what, writes, want)
		}
	}
}

// TestArguments checks that a lease's statements get only names, attempts, the holder and the
// TTL as arguments, and never a time of the client's clock.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			w := new(wire)
			arguments(conformance.New(t, w.handle(0), engine), w)
		})
	}
}

func arguments[Tx any](e *conformance.Env[Tx], w *wire) {
	const ttl = 2*time.Second + time.Microsecond
	o := sqllock.Options{TTL: ttl, Holder: "the holder"}
	l, err := sqllock.New(e.Ctx, e.DB, o)
	if err != nil {
		e.Fatal(err)
	}
	other, err := sqllock.New(e.Ctx, e.DB, o)
	if err != nil {
		e.Fatal(err)
	}
	w.take()
	lease, err := l.Acquire(e.Ctx, "key")
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.Ctx, ttl) // time enough to poll and to be renewed
	defer cancel()
	if _, err := other.Acquire(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("a second holder: %v", err)
	}
	tx, err := e.Begin(e.Ctx, 0)
	if err != nil {
		e.Fatal(err)
	}
	if err := l.Guard(e.Ctx, tx, lease.Term()); err != nil {
		e.Fatal(err)
	}
	if err := errors.Join(e.End(e.Ctx, tx, true), lease.Release(e.Ctx), l.Close(e.Ctx), other.Close(e.Ctx)); err != nil {
		e.Error(err)
	}
	calls, _ := w.take()
	seen := map[string]int{}
	for _, c := range calls {
		for _, arg := range c.args {
			switch v := arg.(type) {
			case []byte:
				seen["name or attempt"]++
				if string(v) != "lkey" && len(v) != 16 {
					e.Errorf("%q in %s", v, c.text)
				}
			case string:
				if v == "" { // the owner
					break
				}
				seen["holder"]++
				// A notification carries its channel, and its lock name in hex; a named lock has the
				// id of a process.
				if v != o.Holder && !strings.Contains(c.text, "pg_notify") && !strings.Contains(c.text, "GET_LOCK") {
					e.Errorf("%q in %s", v, c.text)
				}
			case int64:
				switch {
				case v == ttl.Microseconds():
					seen["TTL"]++
				case v == lease.Token():
					seen["token"]++
				case v >= 1e9: // neither a count nor a duration; the seconds since 1970 are larger
					e.Errorf("%d in %s", v, c.text)
				}
			default:
				e.Errorf("%T %v in %s", arg, arg, c.text)
			}
		}
	}
	for _, kind := range []string{"name or attempt", "holder", "TTL", "token"} {
		if seen[kind] == 0 {
			e.Errorf("no %s was sent at all: nothing was observed", kind)
		}
	}
}

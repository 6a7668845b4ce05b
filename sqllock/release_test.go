package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// parked is a context whose Done waits until it is let go. It keeps a call that waits in the queue
// from looking at what it was given.
type parked struct {
	context.Context

	there chan struct{} // closed by the first call
	first sync.Once
	goOn  chan struct{}
}

func (p *parked) Done() <-chan struct{} {
	p.first.Do(func() { close(p.there) })
	<-p.goOn
	return p.Context.Done()
}

// TestHandedOverOnce has two leases of one Locker on one key, one of which was taken away by
// force. Both are released before the call to which the first was handed over has looked. The
// second must not take away what the call was given: nobody would have the lease then, and it
// would be renewed for ever.
func TestHandedOverOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, _, _ := openLocker(t, engine, Options{TTL: time.Hour})
		defer func() { _ = l.Close(context.Background()) }()
		ctx := t.Context()
		taken, err := l.Acquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		waits, given := &parked{Context: ctx, there: make(chan struct{}), goOn: make(chan struct{})}, make(chan *Lease, 1)
		go func() {
			lease, err := l.Acquire(waits, "key")
			if err != nil {
				t.Error(err)
			}
			given <- lease
		}()
		<-waits.there
		if _, err := l.ForceRelease(ctx, "key", 0, holdfast.Actor{By: "test", Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
		later, err := l.TryAcquire(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		if err := later.Release(ctx); err != nil {
			t.Error(err)
		}
		if err := taken.Release(ctx); !errors.Is(err, ErrLost) {
			t.Errorf("the release of a lease that was taken away returned %v", err)
		}
		close(waits.goOn)
		select {
		case lease := <-given:
			if lease == nil || lease.Token() <= later.Token() {
				t.Errorf("the waiting call got %+v", lease)
			} else if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
		case <-time.After(dbtest.Hang):
			t.Error("the waiting call got no lease")
		}
	})
}

// TestReleasedTogetherAndTaken releases several terms in one statement. Another attempt has one
// of the rows by the time its state is read, but the affected-row count shows that the
// statement had ended that term. If the count does not show which of two terms was ended,
// neither is reported as ended.
func TestReleasedTogetherAndTaken(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		dbtest.Needs(t, engine, dbtest.OneStatement)
		l, pool, seen := openLocker(t, engine, Options{TTL: time.Hour})
		defer func() { _ = l.Close(context.Background()) }()
		if l.leases.statements.Dialect.Leases.ReleaseTells || engine == dbtest.SQLite {
			return // the release returns each row; SQLite has one writer
		}
		// In a table with few rows, a statement may read, and wait for, all of them.
		rows := strings.TrimSuffix(strings.Repeat(`('', UUID(), 1, NULL, '', 0, 0),`, 1000), ",")
		if _, err := pool.ExecContext(t.Context(), `INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES `+rows); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			lost string // in addition to the one that is taken and the one that is guarded
			want keeper.Freed
		}{{"", keeper.Freed{Was: true, Ambiguous: true}}, {"lost", keeper.Freed{Ambiguous: true}}} {
			got := releaseTogether(t, l, pool, seen, c.lost)
			if got != c.want {
				t.Errorf("lost before %q: got %+v, want %+v", c.lost, got, c.want)
			}
		}
	})
}

// releaseTogether releases the terms of taken, guarded and, unless it is empty, lost in one
// statement. It returns the result for taken.
func releaseTogether(t *testing.T, l *Locker[*sql.Tx], pool *sql.DB, seen *observed, lost string) (said keeper.Freed) {
	t.Helper()
	ctx := t.Context()
	var all []freeing
	leases := map[string]*Lease{}
	for _, key := range []string{"taken", "guarded", lost} {
		if key == "" {
			continue
		}
		lease, err := l.Acquire(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		leases[key] = lease
		all = append(all, freeing{*lease.kept().Attempt(), lease.Token()})
	}
	if lost != "" {
		if _, err := l.ForceRelease(ctx, lost, 0, holdfast.Actor{By: "test", Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Guard(ctx, tx, leases["guarded"].Term()); err != nil {
		t.Fatal(err)
	}
	var next sync.Once
	seen.then(func(name string) {
		if name == "locks.release" {
			next.Do(func() {
				a := keeper.Attempt{Name: leases["taken"].kept().Attempt().Name, ID: keeper.NewProcess().NewAttemptID(), TTL: time.Minute}
				if v, err := l.leases.statements.acquireAlone(ctx, a); err != nil || !v.Won {
					t.Errorf("the next one: %+v, %v", v, err)
				}
			})
		}
	})
	l.leases.statements.freeMany(ctx, all, nil, func(i int, f keeper.Freed) {
		if i == 0 {
			said = f
		}
	})
	seen.then(nil)
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	for _, lease := range leases {
		_ = lease.Release(ctx)
	}
	_, err = l.ForceRelease(ctx, "taken", 0, holdfast.Actor{By: "test", Reason: "a test"})
	if err != nil {
		t.Error(err)
	}
	return said
}

// TestWaitUnderALapsedLease waits for a lock of another Locker under the context of a lease whose trust window ends, although
// its timer has not fired. The context then ends that lease, which takes the lock of the Locker's state.
func TestWaitUnderALapsedLease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, pool, _ := openLocker(t, engine, Options{TTL: time.Hour})
		defer func() { _ = l.Close(context.Background()) }()
		db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true})
		if err != nil {
			t.Fatal(err)
		}
		other, err := New(t.Context(), db, Options{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Close(context.Background()) }()
		held, err := other.Acquire(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		outer, err := l.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := l.Acquire(outer.Context(), "b")
			ended <- err
		}()
		dbtest.Eventually(t, "a call was refused and waits", func() bool {
			l.leases.k.Mu.Lock()
			defer l.leases.k.Mu.Unlock()
			for _, q := range l.leases.queues {
				for _, w := range q.waiters {
					return w.watched
				}
			}
			return false
		})
		outer.kept().Lapse()
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-ended:
			if err != nil && !errors.Is(err, ErrLost) { // it may have been asking before the window ended
				t.Errorf("%v, want ErrLost", err)
			}
		case <-time.After(dbtest.Hang):
			t.Fatal("it waits for ever, and so does the whole Locker")
		}
	})
}

// TestLapsedAmongSeveral ends the trust window of one of several leases, although its timer has not fired: their common context says
// so at once, and a call that has not got them all yet fails.
func TestLapsedAmongSeveral(t *testing.T) {
	t.Parallel()
	l, _, _ := openLocker(t, dbtest.SQLite, Options{TTL: time.Hour})
	defer func() { _ = l.Close(context.Background()) }()
	all, err := l.AcquireAll(t.Context(), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if err := all.Context().Err(); err != nil {
		t.Error(err)
	}
	all.All()[0].kept().Lapse()
	if err := all.Context().Err(); err == nil || !errors.Is(context.Cause(all.Context()), ErrLost) {
		t.Errorf("%v, because of %v", err, context.Cause(all.Context()))
	}
	_ = all.Release(t.Context())

	var first *Lease
	_, err = together(t.Context(), l.owner, []string{"c", "d"}, func(key string) (*Lease, error) {
		lease, err := l.Acquire(t.Context(), key)
		if first == nil {
			first = lease
		} else {
			first.kept().Lapse()
		}
		return lease, err
	})
	if !errors.Is(err, ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	for _, key := range []string{"c", "d"} {
		lease, err := l.TryAcquire(t.Context(), key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		_ = lease.Release(t.Context())
	}
}

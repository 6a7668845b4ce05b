package leases

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// Handles is the suite of leases that another process takes up, or is asked to let go.
func Handles[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*env[Tx]){
		"Resume": resume[Tx], "Once": resumeOnce[Tx], "Restart": resumeAfterRestart[Tx], "Refused": resumeRefused[Tx],
		"SameProcess": resumeInProcess[Tx], "Wanted": wanted[Tx], "WantedFair": wantedFair[Tx], "BehindGuard": resumeBehindGuard[Tx], "OldSnapshot": resumeOldSnapshot[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, test)
		})
	}
}

// handle returns a lease's handle.
func (e *env[Tx]) handle(lease *sqllock.Lease) sqllock.Handle {
	e.Helper()
	h, err := lease.Handle()
	e.Check(err)
	if again, err := lease.Handle(); again != h || err != nil {
		e.Errorf("another handle of the same lease: %v", err)
	}
	return h
}

// resumed takes up a handle.
func (e *env[Tx]) resumed(l *sqllock.Locker[Tx], h sqllock.Handle, opts ...sqllock.AcquireOptions) *sqllock.Lease {
	e.Helper()
	lease, err := l.Resume(e.Ctx, h, opts...)
	e.Check(err)
	return lease
}

// guards returns the error of a guard in a new transaction.
func (e *env[Tx]) guards(l *sqllock.Locker[Tx], term sqllock.Term) error {
	return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return l.Guard(ctx, tx, term) })
}

// resume checks that a lease that another process takes up keeps its token and its value, that a third
// process never gets it, and that every call of the first holder says that its lease is lost.
func resume[Tx any](e *env[Tx]) {
	for what, lost := range map[string]func(l *sqllock.Locker[Tx], lease *sqllock.Lease) error{
		"guard":   func(l *sqllock.Locker[Tx], lease *sqllock.Lease) error { return e.guards(l, lease.Term()) },
		"value":   func(_ *sqllock.Locker[Tx], lease *sqllock.Lease) error { return lease.SetValue(e.Ctx, []byte("mine")) },
		"release": func(_ *sqllock.Locker[Tx], lease *sqllock.Lease) error { return lease.Release(e.Ctx) },
		"renewal": func(l *sqllock.Locker[Tx], lease *sqllock.Lease) error {
			access.Locker[interface{ RenewAll(ctx context.Context) }](l).RenewAll(e.Ctx)
			return context.Cause(lease.Context())
		},
	} {
		first, second, third := e.locker("first"), e.locker("second"), e.locker("third")
		lease := e.TryAcquire(first, what)
		e.Check(lease.SetValue(e.Ctx, []byte("said")))
		before, _, err := first.Inspect(e.Ctx, what)
		e.Check(err)
		h := e.handle(lease)

		var tries atomic.Int64
		tried := func(more int64) { // the third has tried again since
			since := tries.Load()
			e.Eventually("the third tries", func() bool { return tries.Load() >= since+more })
		}
		stop := make(chan struct{})
		var trying sync.WaitGroup
		trying.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got, err := third.TryAcquire(e.Ctx, what); !errors.Is(err, sqllock.ErrHeld) {
					e.Errorf("%s: a third process got in between: %v, %v", what, got, err)
					return
				}
				tries.Add(1)
			}
		})
		tried(2)
		again := e.resumed(second, h)
		tried(2)
		if again.Token() != lease.Token() || again.Key() != what {
			e.Errorf("%s: resumed with token %d, was %d", what, again.Token(), lease.Token())
		}
		after, _, err := second.Inspect(e.Ctx, what)
		e.Check(err)
		if !after.Held || after.Holder != "second" || after.Token != before.Token || !after.Since.Equal(before.Since) || string(after.Value) != "said" {
			e.Errorf("%s: was %+v, is %+v", what, before, after)
		}
		if err := lost(first, lease); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("%s of the first holder: %v", what, err)
		}
		if what != "value" && what != "release" { // these do not end the context, or end it as released
			e.WantEnded(lease, sqllock.ErrLost)
		}
		if err := lease.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("%s: the first holder's release: %v", what, err)
		}
		tried(2)
		for of, term := range map[string]sqllock.Term{"lease": again.Term(), "token": third.Term(what, again.Token())} {
			if err := e.guards(second, term); err != nil {
				e.Errorf("%s: guarded by its %s: %v", what, of, err)
			}
		}
		e.Check(again.SetValue(e.Ctx, []byte("and more")))
		if err := again.Context().Err(); err != nil {
			e.Errorf("%s: the lease that was taken up: %v", what, err)
		}
		close(stop)
		trying.Wait()
		e.MustRelease(again)
		if next := e.wantFree(third, what); next.Token() <= again.Token() {
			e.Errorf("%s: token %d after %d", what, next.Token(), again.Token())
		}
	}
}

// resumeOnce checks that of fifty calls with one handle exactly one gets the lease.
func resumeOnce[Tx any](e *env[Tx]) {
	lockers := e.Lockers(5, sqllock.Options{})
	lease := e.TryAcquire(lockers[0], "k")
	h := e.handle(lease)
	start := make(chan struct{})
	var calls sync.WaitGroup
	var won atomic.Int64
	for i := range 50 {
		calls.Go(func() {
			<-start
			again, err := lockers[i%5].Resume(e.Ctx, h)
			switch {
			case err == nil:
				won.Add(1)
				if err := e.guards(lockers[i%5], again.Term()); err != nil {
					e.Errorf("its guard: %v", err)
				}
			case !errors.Is(err, sqllock.ErrLost):
				e.Errorf("got %v", err)
			}
		})
	}
	close(start)
	calls.Wait()
	if won.Load() != 1 {
		e.Errorf("%d calls got the lease", won.Load())
	}
	e.wantHeld(e.locker("other"), "k")
}

// resumeAfterRestart checks that a lease with a handle outlives its Locker, and no other does.
func resumeAfterRestart[Tx any](e *env[Tx]) {
	first, second := e.locker("first"), e.locker("second")
	lease, other := e.TryAcquire(first, "k"), e.TryAcquire(first, "other")
	h := e.handle(lease)
	e.Check(first.Close(e.Ctx))
	e.WantEnded(lease, sqllock.ErrClosed)
	if _, err := lease.Handle(); !errors.Is(err, sqllock.ErrClosed) {
		e.Errorf("a handle of a lease that has ended: %v", err)
	}
	if next := e.TryAcquire(second, "other"); next.Token() <= other.Token() {
		e.Errorf("token %d after %d", next.Token(), other.Token())
	}
	e.wantHeld(second, "k")
	again := e.resumed(second, h)
	if again.Token() != lease.Token() {
		e.Errorf("token %d, was %d", again.Token(), lease.Token())
	}
	more := e.resumed(e.locker("third"), e.handle(again), sqllock.AcquireOptions{TTL: time.Hour})
	if i, _, err := second.Inspect(e.Ctx, "k"); err != nil || i.Remaining < time.Hour/2 || i.Token != lease.Token() {
		e.Errorf("%+v, %v", i, err)
	}
	e.MustRelease(more)
	if _, err := more.Handle(); !errors.Is(err, sqllock.ErrReleased) {
		e.Errorf("a handle of a lease that was released: %v", err)
	}
}

// resumeRefused checks that only the handle of the live term is good.
func resumeRefused[Tx any](e *env[Tx]) {
	l, other := e.locker("one"), e.locker("other")
	lease, neighbour := e.TryAcquire(l, "k"), e.TryAcquire(l, "neighbour")
	h := e.handle(lease)
	part := strings.Split(string(h), ".")
	with := func(i int, text string) sqllock.Handle {
		parts := append([]string(nil), part...)
		parts[i] = text
		return sqllock.Handle(strings.Join(parts, "."))
	}
	info, _, err := other.Inspect(e.Ctx, "k")
	e.Check(err)
	theirs := strings.Split(string(e.handle(neighbour)), ".")
	for what, h := range map[string]sqllock.Handle{
		"made of what Inspect shows":   with(1, strings.Repeat("A", len(part[1]))),
		"with the neighbour's attempt": with(1, theirs[1]),
		"of the next token":            with(2, strconv.FormatInt(info.Token+1, 10)),
		"of the neighbour's key":       with(5, theirs[5]),
	} {
		var lost *sqllock.LostError
		if _, err := other.Resume(e.Ctx, h); !errors.As(err, &lost) {
			e.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []sqllock.Handle{
		"", "x", h + "!", h[:len(h)-1], h[1:], h + ".", "2" + h[1:], with(2, "x"), with(1, ""), with(5, ""), with(5, theirs[5][:1]), with(4, "b3duZXI"), sqllock.Handle(h.String()),
	} {
		if _, err := other.Resume(e.Ctx, text); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%q: %v", string(text), err)
		}
	}
	if _, err := other.Resume(e.Ctx, with(3, strings.Repeat("A", len(part[3])))); !errors.Is(err, sqllock.ErrOtherStore) {
		e.Errorf("of other tables: %v", err)
	}
	if _, err := other.Resume(e.Ctx, h, sqllock.AcquireOptions{TTL: 1}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a TTL of a nanosecond: %v", err)
	}
	if err := e.guards(l, lease.Term()); err != nil {
		e.Errorf("after all of this: %v", err)
	}

	e.MustRelease(lease)
	refused := func(what string) {
		e.Helper()
		if _, err := other.Resume(e.Ctx, h); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("%s: %v", what, err)
		}
	}
	refused("released")
	lease = e.wantFree(l, "k")
	refused("of an earlier term")
	h = e.handle(lease)
	_, err = other.ForceRelease(e.Ctx, "k", 0, holdfast.Actor{By: "test", Reason: "a test"})
	e.Check(err)
	refused("taken away")
	lease = e.wantFree(l, "expired")
	h = e.handle(lease)
	e.Must(`UPDATE holdfast_locks SET expires_at = 0 WHERE owner = '' AND name = $1`, leaseRow("expired"))
	refused("expired")
	e.MustRelease(e.wantFree(other, "expired"))

	fair, err := fairlock.New(l).Acquire(e.Ctx, "k")
	e.Check(err)
	if _, err := fair.Handle(); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("of a fair lock: %v", err)
	}
	e.MustRelease(fair)
}

// resumeInProcess checks that a Locker takes up its own lease: the first one ends at once, and a call
// that waits gets the lock behind the second.
func resumeInProcess[Tx any](e *env[Tx]) {
	l := e.locker("one")
	lease := e.TryAcquire(l, "k")
	arrived := make(chan arrival, 1)
	e.queue(e.Ctx, l, "k", 0, 1, arrived)
	again := e.resumed(l, e.handle(lease))
	if err := context.Cause(lease.Context()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("the first lease: %v", err)
	}
	if err := e.guards(l, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its guard: %v", err)
	}
	if err := lease.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its release: %v", err)
	}
	if err := e.guards(l, again.Term()); err != nil || again.Context().Err() != nil {
		e.Errorf("the second lease: %v, %v", err, again.Context().Err())
	}
	e.MustRelease(again)
	next := <-arrived
	if next.err != nil || next.lease.Token() <= again.Token() {
		e.Errorf("the next: %v", next.err)
	}
}

// resumeBehindGuard checks that Resume waits for a transaction that the first holder has guarded.
func resumeBehindGuard[Tx any](e *env[Tx]) {
	first, second := e.locker("first"), e.locker("second")
	lease := e.TryAcquire(first, "k")
	h := e.handle(lease)
	tx := e.BeginTx(sql.LevelReadCommitted)
	e.Check(first.Guard(e.Ctx, tx, lease.Term()))
	resumed := make(chan error, 1)
	go func() {
		_, err := second.Resume(e.Ctx, h)
		resumed <- err
	}()
	if e.Engine != dbtest.SQLite {
		e.Eventually("it waits", func() bool { return e.Waiters() > 0 })
	}
	select {
	case err := <-resumed:
		e.Errorf("it did not wait: %v", err)
	default:
	}
	e.EndTx(tx, true)
	if err := <-resumed; err != nil {
		e.Errorf("behind the guard: %v", err)
	}
	if err := e.guards(first, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("the next guard of the first holder: %v", err)
	}
}

// resumeOldSnapshot checks that the guard of a lease refuses a transaction whose snapshot is older than its
// Resume: it would not see what the first holder wrote, under the same token.
func resumeOldSnapshot[Tx any](e *env[Tx]) {
	e.Must(`CREATE TABLE lease_accounts (id INT PRIMARY KEY, balance INT NOT NULL)`)
	e.Must(`INSERT INTO lease_accounts VALUES (1, 100)`)
	first, second := e.locker("first"), e.locker("second")
	lease := e.TryAcquire(first, "k")
	level := sql.LevelRepeatableRead
	if e.Engine == dbtest.SQLite {
		level = sql.LevelDefault
	}
	tx := e.BeginTx(level)
	if n, _, err := e.ReadInt(tx, `SELECT balance FROM lease_accounts WHERE id = $1`, 1); err != nil || n != 100 {
		e.Fatal(n, err)
	}
	e.guarded(first, sql.LevelDefault, lease.Term(), func(tx Tx) {
		_, err := e.Exec(e.Ctx, tx, `UPDATE lease_accounts SET balance = 0 WHERE id = $1`, 1)
		e.Check(err)
	})
	again := e.resumed(second, e.handle(lease))
	if err := second.Guard(e.Ctx, tx, again.Term()); !errors.Is(err, holdfast.ErrRetry) {
		e.Errorf("a snapshot from before it was resumed: %v", err)
	}
	e.guarded(second, level, again.Term(), func(tx Tx) {
		if n, _, err := e.ReadInt(tx, `SELECT balance FROM lease_accounts WHERE id = $1`, 1); err != nil || n != 0 {
			e.Errorf("read %d, %v", n, err)
		}
	})
}

package fairlocks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// answer is the result of a waiting call.
type answer struct {
	lease *sqllock.Lease
	err   error
}

// standing starts a call and waits until it is the n-th ticket in the queue. arrived receives its
// result; leave cancels it.
func (e *env[Tx]) standing(n int, acquire func(ctx context.Context) (*sqllock.Lease, error)) (arrived chan answer, leave context.CancelFunc) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Ctx)
	arrived = make(chan answer, 1)
	go func() {
		lease, err := acquire(ctx)
		arrived <- answer{lease, err}
	}()
	e.Eventually("it stands in line", func() bool { return e.Tickets() == n })
	return arrived, cancel
}

func ticketsLine[Tx any](e *env[Tx]) {
	one, two := e.Lockers(1, sqllock.Options{Holder: "one"})[0], e.Lockers(1, sqllock.Options{Holder: "two"})[0]
	if line, err := fairlock.New(one).Queue(e.Ctx, "k"); err != nil || line.Key != "k" || len(line.Tickets) != 0 {
		e.Fatalf("nobody was there: %+v, %v", line, err)
	}
	if _, err := fairlock.New(one).Queue(e.Ctx, ""); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("got %v", err)
	}
	shared, err := fairlock.New(one).AcquireShared(e.Ctx, "k")
	e.Check(err)
	alone, leave := e.standing(2, func(ctx context.Context) (*sqllock.Lease, error) { return fairlock.New(two).Acquire(ctx, "k") })
	behind, leaveBehind := e.standing(3, func(ctx context.Context) (*sqllock.Lease, error) { return fairlock.New(one).AcquireShared(ctx, "k") })
	line, err := fairlock.New(two).Queue(e.Ctx, "k")
	e.Check(err)
	if len(line.Tickets) != 3 || line.Permits != 0 {
		e.Fatalf("got %+v", line)
	}
	for i, want := range []fairlock.Ticket{
		{Holder: "one", Permits: 1, Held: true}, {Holder: "two", Permits: fairlock.MaxPermits}, {Holder: "one", Permits: 1},
	} {
		p := line.Tickets[i]
		if p.Holder != want.Holder || p.Permits != want.Permits || p.Held != want.Held {
			e.Errorf("place %d: %+v, want %+v", i, p, want)
		}
		if p.Remaining <= 0 || p.Remaining > dbtest.Hang || p.Since.IsZero() || i > 0 && p.Token <= line.Tickets[i-1].Token {
			e.Errorf("place %d: %+v", i, p)
		}
	}
	if line.Tickets[0].Token != shared.Token() {
		e.Errorf("token %d, want %d", line.Tickets[0].Token, shared.Token())
	}
	leave()
	leaveBehind()
	<-alone
	if a := <-behind; a.err == nil {
		e.Check(a.lease.Release(e.Ctx))
	}
	e.Check(shared.Release(e.Ctx))
	e.Eventually("all have left", func() bool { // a call that gave up is removed in the background
		line, err := fairlock.New(one).Queue(e.Ctx, "k")
		return err == nil && len(line.Tickets) == 0
	})
}

func ticketsLines[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{})[0]
	keys := []string{"a", "a/", "a/1", "a/2\x00", "a/2", "a/\xff", "b"}
	for _, k := range keys {
		for range 2 {
			_, err := fairlock.New(l).AcquireShared(e.Ctx, k)
			e.Check(err)
		}
		s, err := fairlock.New(l).Semaphore(k, 3)
		e.Check(err)
		_, err = s.Acquire(e.Ctx, 2)
		e.Check(err)
	}
	slices.Sort(keys)
	for _, prefix := range []string{"", "a", "a/", "a/\xff", "c"} {
		var want, fair, permits []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		for line, err := range fairlock.New(l).Queues(e.Ctx, fairlock.ListOptions{Prefix: prefix}) {
			e.Check(err)
			fair = append(fair, line.Key)
			if len(line.Tickets) != 2 || line.Permits != 0 {
				e.Errorf("got %+v", line)
			}
		}
		for line, err := range fairlock.New(l).Semaphores(e.Ctx, fairlock.ListOptions{Prefix: prefix}) {
			e.Check(err)
			permits = append(permits, line.Key)
			if len(line.Tickets) != 1 || line.Permits != 3 || line.Tickets[0].Permits != 2 || !line.Tickets[0].Held {
				e.Errorf("got %+v", line)
			}
		}
		if !slices.Equal(fair, want) || !slices.Equal(permits, want) {
			e.Errorf("prefix %q: got %q and %q, want %q", prefix, fair, permits, want)
		}
	}
	for range fairlock.New(l).Queues(e.Ctx) {
		break
	}
}

// ticketsOutliveTheirRow sweeps while a fair lock and a permit are held for long. Their key's row goes, and an
// operator sees and ends them all the same.
func ticketsOutliveTheirRow[Tx any](e *env[Tx]) {
	l := e.Lockers(1, sqllock.Options{Holder: "worker"})[0]
	s, err := fairlock.New(l).Semaphore("k", 2)
	e.Check(err)
	held, err := fairlock.New(l).Acquire(e.Ctx, "k")
	e.Check(err)
	permit, err := s.Acquire(e.Ctx, 1)
	e.Check(err)
	e.Must(`UPDATE holdfast_locks SET expires_at = 0`)
	_, err = e.Reaper(reaper.Options{}).Sweep(e.Ctx)
	e.Check(err)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_locks`); n != 0 {
		e.Errorf("%d rows of keys", n)
	}
	for kind, queue := range map[string]func() (fairlock.Queue, error){
		"fair": func() (fairlock.Queue, error) { return fairlock.New(l).Queue(e.Ctx, "k") }, "semaphore": func() (fairlock.Queue, error) { return s.Queue(e.Ctx) },
	} {
		if q, err := queue(); err != nil || len(q.Tickets) != 1 || !q.Tickets[0].Held || q.Tickets[0].Holder != "worker" {
			e.Errorf("%s: %+v, %v", kind, q, err)
		}
	}
	for kind, queues := range map[string]iter.Seq2[fairlock.Queue, error]{"fair": fairlock.New(l).Queues(e.Ctx), "semaphore": fairlock.New(l).Semaphores(e.Ctx)} {
		n := 0
		for q, err := range queues {
			e.Check(err)
			n += len(q.Tickets)
		}
		if n != 1 {
			e.Errorf("%s: a list has %d tickets", kind, n)
		}
	}
	who := holdfast.Actor{By: "olga", Reason: "it hangs"}
	for _, force := range []func() (bool, error){
		func() (bool, error) { return fairlock.New(l).ForceRelease(e.Ctx, "k", held.Token(), who) },
		func() (bool, error) { return s.ForceRelease(e.Ctx, permit.Token(), who) },
	} {
		if had, err := force(); !had || err != nil {
			e.Errorf("force: %v, %v", had, err)
		}
	}
	n := 0
	e.Each(`SELECT before_state FROM holdfast_audit`, func(rows *sql.Rows) {
		var before string
		e.Check(rows.Scan(&before))
		if n++; !strings.Contains(before, `"held":true`) || !strings.Contains(before, `worker`) {
			e.Errorf("the audit says %s", before)
		}
	})
	if n != 2 {
		e.Errorf("%d entries in the audit", n)
	}
}

func ticketsForceRelease[Tx any](e *env[Tx]) {
	l, operator := e.Lockers(1, sqllock.Options{Holder: "worker", TTL: 3 * time.Second})[0], e.Lockers(1, sqllock.Options{Holder: "operator"})[0]
	s, err := fairlock.New(operator).Semaphore("k", 2)
	e.Check(err)
	for _, reason := range []string{"", strings.Repeat("r", 501)} {
		_, err := fairlock.New(operator).ForceRelease(e.Ctx, "k", 1, holdfast.Actor{By: "test", Reason: reason})
		_, sem := s.ForceRelease(e.Ctx, 1, holdfast.Actor{By: "test", Reason: reason})
		if !errors.Is(err, holdfast.ErrInvalid) || !errors.Is(sem, holdfast.ErrInvalid) {
			e.Errorf("reason %.10q: %v, %v", reason, err, sem)
		}
	}
	lease, err := fairlock.New(l).Acquire(e.Ctx, "k")
	e.Check(err)
	if had, err := fairlock.New(operator).ForceRelease(e.Ctx, "k", lease.Token()-1, holdfast.Actor{By: "test", Reason: "nobody's"}); had || err != nil {
		e.Errorf("a token that nobody has: %v, %v", had, err)
	}
	if had, err := s.ForceRelease(e.Ctx, lease.Token(), holdfast.Actor{By: "test", Reason: "of another kind"}); had || err != nil {
		e.Errorf("another kind's token: %v, %v", had, err)
	}
	next, _ := e.standing(2, func(ctx context.Context) (*sqllock.Lease, error) { return fairlock.New(operator).Acquire(ctx, "k") })
	had, err := fairlock.New(operator).ForceRelease(e.Ctx, "k", lease.Token(), holdfast.Actor{By: "olga", Reason: "it hangs, ticket 7"})
	if !had || err != nil {
		e.Fatal(had, err)
	}
	a := <-next
	e.Check(a.err)
	if a.lease.Token() <= lease.Token() {
		e.Errorf("token %d after %d", a.lease.Token(), lease.Token())
	}
	if err := e.underTerms(l, "k", lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its guard says %v", err)
	}
	e.WantEnded(lease, sqllock.ErrLost)
	if err := lease.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its release says %v", err)
	}
	line, err := fairlock.New(l).Queue(e.Ctx, "k")
	e.Check(err)
	if got := fmt.Sprint(line.Forced.By, ", ", line.Forced.Reason); got != "olga, it hangs, ticket 7" || line.Forced.At.IsZero() {
		e.Errorf("the record is %+v", line.Forced)
	}
	e.Check(a.lease.Release(e.Ctx))
}

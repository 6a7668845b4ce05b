package leases

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/sqllock"
)

// told returns an event as "key kind", and how many terms it missed.
func told(ev sqllock.Event) string {
	text := ev.Key + " " + string(ev.Kind)
	if ev.Missed != 0 {
		text += fmt.Sprintf(" %+d", ev.Missed)
	}
	return text
}

// step is what a watch must yield, and what is done then. A watch does not read while its loop's body
// runs, so its next read sees all of that at once.
type step struct {
	want string
	do   func()
}

// follow does the steps.
func (e *env[Tx]) follow(watch iter.Seq2[sqllock.Event, error], steps []step) {
	e.Helper()
	var seen []string
	for event, err := range watch {
		if err != nil {
			e.Fatal(err)
		}
		seen = append(seen, told(event))
		want := strings.Split(steps[0].want, ", ")
		if len(seen) < len(want) {
			continue
		}
		if !slices.Equal(seen, want) {
			e.Fatalf("with %d steps to go, saw %q, want %q", len(steps), seen, want)
		}
		if seen = nil; steps[0].do == nil {
			return
		}
		steps[0].do()
		steps = steps[1:]
	}
}

// quiet is a lease that is not renewed, so that no renewal comes between the events of a test.
var quiet = sqllock.AcquireOptions{TTL: dbtest.Hang, NoRenewal: true}

func (e *env[Tx]) set(key, assignments string) {
	e.Must(e.now(`UPDATE holdfast_locks SET `+assignments+` WHERE owner = '' AND name = $1`), leaseRow(key))
}

func watch[Tx any](e *env[Tx]) {
	l, other := e.locker("one"), e.locker("other")
	var lease *sqllock.Lease
	acquire := func() { lease = e.TryAcquire(l, "k", quiet) }
	release := func() { e.MustRelease(lease) }
	force := func() {
		had, err := other.ForceRelease(e.Ctx, "k", 0, holdfast.Actor{By: "olga", Reason: "it hangs"})
		if !had || err != nil {
			e.Fatal(had, err)
		}
	}
	expire := func() { e.set("k", `expires_at = {now} - 1`) }
	reap := func() { e.Must(`DELETE FROM holdfast_locks WHERE owner = '' AND name = $1`, leaseRow("k")) }
	many := func() {
		for range 100 {
			e.MustRelease(e.TryAcquire(other, "k", quiet))
		}
	}
	all := func(f ...func()) func() {
		return func() {
			for _, f := range f {
				f()
			}
		}
	}
	e.follow(e.locker("observer").Watch(e.Ctx, "k"), []step{
		{"k present", acquire},
		{"k granted", func() { e.set("k", `expires_at = expires_at + 1`) }},
		{"k renewed", release},
		{"k released", all(acquire, release)},
		{"k granted, k released", many},
		{"k granted +99, k released", all(acquire, expire)},
		{"k granted, k expired", all(func() { _ = lease.Release(e.Ctx) }, acquire)}, // late, and of no term any more
		{"k granted", all(expire, acquire)},
		{"k granted", all(release, many, acquire)},
		{"k granted +100", force},
		{"k forced", all(acquire, force)},
		{"k granted, k forced", acquire},
		{"k granted", all(force, acquire)},
		{"k forced, k granted", all(release, reap, acquire)},
		{"k granted -1", reap},
		{"k gone", acquire},
		{"k granted", nil},
	})
}

func watchEnds[Tx any](e *env[Tx]) {
	l := e.locker("one")
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(e.Ctx)
	closed := e.locker("closed")
	for what, c := range map[string]struct {
		watch iter.Seq2[sqllock.Event, error]
		do    func()
		err   error
	}{
		"ctx":              {l.Watch(ctx, "k"), func() { cancel(stop) }, stop},
		"the Locker":       {closed.Watch(e.Ctx, "k"), func() { e.Check(closed.Close(e.Ctx)) }, sqllock.ErrClosed},
		"no key":           {l.Watch(e.Ctx, ""), nil, holdfast.ErrInvalid},
		"an owner":         {l.For("\xff").Watch(e.Ctx, "k"), nil, holdfast.ErrInvalid},
		"a prefix's owner": {l.For("\xff").WatchPrefix(e.Ctx, "k"), nil, holdfast.ErrInvalid},
	} {
		n := 0
		for event, err := range c.watch {
			if n++; err == nil && event.Kind == sqllock.EventPresent && c.do != nil {
				c.do()
				c.do = nil
			} else if c.do != nil || !errors.Is(err, c.err) {
				e.Errorf("%s: event %d is %+v, %v", what, n, event, err)
			}
		}
	}
	for range l.Watch(e.Ctx, "k") {
		break
	}
	e.Eventually("every connection is back", func() bool { return e.InUse() == 0 })
}

// watchPrefix has more keys than a page, and keys of other kinds, of other owners and beside the prefix.
func watchPrefix[Tx any](e *env[Tx]) {
	e.AnyOwner()
	l, other := e.locker("one"), e.locker("other")
	const keys = 600
	rows, want := make([]string, keys), make([]string, keys)
	for i := range rows {
		rows[i] = fmt.Sprintf("('', %s, 1, NULL, 'h', 1, 1)", e.Blob(leaseRow(fmt.Sprintf("p/%04d", i))))
		want[i] = fmt.Sprintf("p/%04d present", i)
	}
	e.Must(`INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES ` + strings.Join(rows, ", "))
	aside := func() {
		for _, lease := range []*sqllock.Lease{e.TryAcquire(l, "p", quiet), e.TryAcquire(l, "p0", quiet), e.TryAcquire(l.For("acme"), "p/0001", quiet)} {
			e.MustRelease(lease)
		}
	}
	var first, last *sqllock.Lease
	e.follow(other.WatchPrefix(e.Ctx, "p/"), []step{
		{strings.Join(want, ", "), func() {
			aside()
			last, first = e.TryAcquire(l, "p/0599", quiet), e.TryAcquire(l, "p/0000", quiet)
			e.MustRelease(e.TryAcquire(l, "p/new", quiet))
		}},
		{"p/0000 granted, p/0599 granted, p/new granted, p/new released", func() {
			aside()
			e.MustRelease(last)
			e.MustRelease(first)
			e.Must(`DELETE FROM holdfast_locks WHERE owner = '' AND name > $1`, leaseRow("p/0000"))
		}},
		{"p/0000 released, p/0599 gone", nil},
	})
}

// watchFails takes the server away from a watch, which must count what it could not see, and then the table,
// which must end it.
func watchFails[Tx any](e *env[Tx]) {
	var failed atomic.Int64
	tries := func() int { return int(failed.Load()) }
	observed := holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		if s.Err != nil {
			failed.Add(1)
		}
	}}}
	lose := func() { e.Must(`ALTER TABLE holdfast_locks RENAME TO away`) }
	find := func() { e.Must(`ALTER TABLE away RENAME TO holdfast_locks`) }
	down, up := lose, find
	var pool conformance.Pool[Tx]
	if e.Engine == dbtest.SQLite {
		pool = e.Open(e.DSN, observed)
	} else {
		var proxy *faultproxy.Proxy
		proxy, pool = e.proxied(observed)
		down, up, tries = proxy.Down, func() { proxy.Refuse(false) }, proxy.Refused
	}
	l, observer := e.locker("one"), e.LockerOn(pool.DB, sqllock.Options{})
	events, ended := make(chan sqllock.Event), make(chan error)
	go func() {
		for event, err := range observer.Watch(e.Ctx, "k") {
			if err != nil {
				ended <- err
				return
			}
			events <- event
		}
	}()
	if event := <-events; event.Kind != sqllock.EventPresent {
		e.Errorf("first %+v", event)
	}
	before := tries()
	down()
	e.Eventually("its reads fail", func() bool { return tries() >= before+2 })
	up()
	for range 3 {
		e.MustRelease(e.TryAcquire(l, "k", quiet))
	}
	for terms := int64(0); terms < 3; {
		select {
		case event := <-events:
			if event.Kind == sqllock.EventGranted {
				terms += 1 + event.Missed
			}
		case err := <-ended:
			e.Fatal(err)
		}
	}
	lose()
	for over := false; !over; {
		select {
		case <-events:
		case err := <-ended:
			if over = true; !errors.Is(err, holdfast.ErrSchema) {
				e.Errorf("it ended with %v", err)
			}
		}
	}
	find()
}

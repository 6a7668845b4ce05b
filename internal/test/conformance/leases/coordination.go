package leases

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
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Coordination is the suite of the features on top of leases: several keys at once, re-entry,
// elections, reads of a lock, and interventions by an operator.
func Coordination[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	for name, test := range map[string]func(*env[Tx]){
		"Inspect": inspect[Tx], "List": list[Tx], "ForceRelease": forceRelease[Tx], "Together": together[Tx],
		"TogetherWithoutDeadlock": togetherWithoutDeadlock[Tx], "Reentry": reentry[Tx], "Election": elections[Tx], "ElectionRun": electionRun[Tx],
		"Watch": watch[Tx], "WatchEnds": watchEnds[Tx], "WatchPrefix": watchPrefix[Tx], "WatchFails": watchFails[Tx],
		"Observe": observe[Tx], "Owners": owners[Tx], "OwnersOfOtherLocks": ownersOfOtherLocks[Tx], "OwnersTogether": ownersTogether[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, test)
		})
	}
}

// locker opens a Locker that is closed when the test ends.
func (e *env[Tx]) locker(holder string) *sqllock.Locker[Tx] {
	e.Helper()
	l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{Holder: holder, TTL: dbtest.Hang})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func inspect[Tx any](e *env[Tx]) {
	l := e.locker("one")
	if _, found, err := l.Inspect(e.Ctx, "k"); found || err != nil {
		e.Fatal(found, err)
	}
	lease := e.TryAcquire(l, "k")
	e.Check(lease.SetValue(e.Ctx, []byte("hello\x00")))
	e.Check(lease.SetValue(e.Ctx, []byte("hello\x00"))) // MySQL counts no affected row
	i, found, err := l.Inspect(e.Ctx, "k")
	e.Check(err)
	if !found || !i.Held || i.Holder != "one" || i.Token != lease.Token() || i.Key != "k" || string(i.Value) != "hello\x00" ||
		i.Remaining <= 0 || i.Remaining > dbtest.Hang || i.Since.IsZero() || i.Forced != (sqllock.Forced{}) {
		e.Errorf("got %+v", i)
	}
	e.Check(lease.Release(e.Ctx))
	if err := lease.SetValue(e.Ctx, []byte("late")); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("a term that has ended said something: %v", err)
	}
	e.wantValue(l, "k", "")
	again := e.TryAcquire(l, "k")
	if i, _, err := l.Inspect(e.Ctx, "k"); err != nil || i.Value != nil || i.Token != again.Token() {
		e.Errorf("a new term: %+v, %v", i, err)
	}
	for _, err := range []error{
		again.SetValue(e.Ctx, make([]byte, sqllock.MaxValue+1)),
		func() error { _, _, err := l.Inspect(e.Ctx, ""); return err }(),
	} {
		if !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("got %v", err)
		}
	}
	e.Check(again.SetValue(e.Ctx, make([]byte, sqllock.MaxValue)))
	if had, err := l.ForceRelease(e.Ctx, "k", 0, holdfast.Actor{By: "test", Reason: "a test"}); !had || err != nil {
		e.Fatal(had, err)
	}
	e.wantValue(l, "k", "")
	expired := e.TryAcquire(l, "expired", sqllock.AcquireOptions{NoRenewal: true})
	e.Check(expired.SetValue(e.Ctx, []byte("x")))
	e.wantValue(l, "expired", "x")
	e.Must(`UPDATE holdfast_locks SET expires_at = 0 WHERE owner = '' AND name = $1`, leaseRow("expired"))
	e.wantValue(l, "expired", "")
}

// wantValue wants a value, or none, of a key from both of its readers.
func (e *env[Tx]) wantValue(l *sqllock.Locker[Tx], key, want string) {
	e.Helper()
	i, found, err := l.Inspect(e.Ctx, key)
	if err != nil || !found || string(i.Value) != want || want == "" && i.Value != nil {
		e.Errorf("%q inspected: %.40q, %v", key, i.Value, err)
	}
	for i, err := range l.List(e.Ctx, sqllock.ListOptions{Prefix: key, Free: true}) {
		if err != nil || i.Key == key && string(i.Value) != want {
			e.Errorf("%q listed: %.40q, %v", key, i.Value, err)
		}
	}
}

func list[Tx any](e *env[Tx]) {
	l := e.locker("one")
	keys := []string{"a", "a/", "a/1", "a/2\x00", "a/2", "a/\xff", "a/\xff\xff", "b"}
	for _, k := range keys {
		lease := e.TryAcquire(l, k)
		if k == "a/1" {
			e.Check(lease.Release(e.Ctx))
		}
	}
	slices.Sort(keys)
	collect := func(prefix string, all bool) (got []string) {
		for i, err := range l.List(e.Ctx, sqllock.ListOptions{Prefix: prefix, Free: all}) {
			e.Check(err)
			got = append(got, i.Key)
		}
		return got
	}
	for prefix, all := range map[string]bool{"": true, "a/": true, "a": false, "a/\xff": true, "c": true, "b": true} {
		var want []string
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) && (all || k != "a/1") {
				want = append(want, k)
			}
		}
		if got := collect(prefix, all); !slices.Equal(got, want) {
			e.Errorf("prefix %q: got %q, want %q", prefix, got, want)
		}
	}
	for _, after := range []string{"", "a", "a/", "a/1", "a/1\x00", "a/\xff", "b", "c"} {
		var got, want []string
		for i, err := range l.List(e.Ctx, sqllock.ListOptions{Prefix: "a/", Free: true, After: sqllock.Info{Key: after}}) {
			e.Check(err)
			got = append(got, i.Key)
		}
		for _, k := range keys {
			if strings.HasPrefix(k, "a/") && k > after {
				want = append(want, k)
			}
		}
		if !slices.Equal(got, want) {
			e.Errorf("behind %q: got %q, want %q", after, got, want)
		}
	}
	for range l.List(e.Ctx) {
		break
	}
}

func forceRelease[Tx any](e *env[Tx]) {
	l, operator := e.locker("worker"), e.locker("operator")
	if had, err := operator.ForceRelease(e.Ctx, "k", 0, holdfast.Actor{By: "test", Reason: "nothing there"}); had || err != nil {
		e.Fatal(had, err)
	}
	lease := e.TryAcquire(l, "k", sqllock.AcquireOptions{TTL: 3 * time.Second})
	for _, text := range []string{"", strings.Repeat("r", 501), "a\x00b", "\xff"} {
		for _, who := range []holdfast.Actor{{By: "olga", Reason: text}, {By: text, Reason: "asked"}} {
			if _, err := operator.ForceRelease(e.Ctx, "k", 0, who); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%.30q: %v", who, err)
			}
		}
	}
	for _, token := range []int64{-1, 1, lease.Token() - 1, lease.Token() + 1} {
		if had, err := operator.ForceRelease(e.Ctx, "k", token, holdfast.Actor{By: "test", Reason: "somebody else's"}); had || err != nil {
			e.Errorf("token %d, the holder's is %d: %v, %v", token, lease.Token(), had, err)
		}
	}
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return l.Guard(ctx, tx, lease.Term()) }))
	had, err := operator.ForceRelease(e.Ctx, "k", lease.Token(), holdfast.Actor{By: "olga", Reason: "it hangs, ticket 7"})
	if !had || err != nil {
		e.Fatal(had, err)
	}
	i, _, err := operator.Inspect(e.Ctx, "k")
	e.Check(err)
	if i.Held || i.Token <= lease.Token() || i.Forced.By != "olga" || i.Forced.Reason != "it hangs, ticket 7" || i.Forced.At.IsZero() {
		e.Errorf("got %+v", i)
	}
	tx, err := e.Begin(e.Ctx, sql.LevelDefault)
	e.Check(err)
	if err := l.Guard(e.Ctx, tx, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("the former holder passed its guard: %v", err)
	}
	select {
	case <-lease.Context().Done():
	case <-e.Ctx.Done():
		e.Fatal("the former holder's context goes on")
	}
	if err := lease.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its release: %v", err)
	}
	next := e.TryAcquire(operator, "k")
	if next.Token() <= i.Token {
		e.Errorf("token %d after %d", next.Token(), i.Token)
	}
}

func together[Tx any](e *env[Tx]) {
	l, other := e.locker("one"), e.locker("other")
	all, err := l.AcquireAll(e.Ctx, []string{"b", "a", "b", "c"})
	e.Check(err)
	var keys []string
	for _, lease := range all.All() {
		keys = append(keys, lease.Key())
	}
	if !slices.Equal(keys, []string{"a", "b", "c"}) {
		e.Errorf("locked %q", keys)
	}
	e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		return l.Guard(ctx, tx, all.Terms()...)
	}))
	var held *sqllock.HeldError
	if _, err := other.TryAcquireAll(e.Ctx, []string{"z", "c", "0"}); !errors.As(err, &held) || held.Key != "c" {
		e.Errorf("got %v", err)
	}
	for _, key := range []string{"0", "z"} { // no lock remains
		e.Check(e.TryAcquire(l, key).Release(e.Ctx))
	}
	short, cancel := context.WithTimeout(e.Ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := other.AcquireAll(short, []string{"0", "a"}); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("got %v", err)
	}
	e.Eventually("the first is free again, be it in the background", func() bool {
		lease, err := l.TryAcquire(e.Ctx, "0")
		return err == nil && lease.Release(e.Ctx) == nil
	})
	_, err = other.ForceRelease(e.Ctx, "b", 0, holdfast.Actor{By: "test", Reason: "test"})
	e.Check(err)
	e.Check(func() error {
		if err := all.Release(e.Ctx); !errors.Is(err, sqllock.ErrLost) {
			return errors.New("the release of all does not tell that one was lost")
		}
		return nil
	}())
	if all.Context().Err() == nil {
		e.Error("its context goes on")
	}
	for _, key := range []string{"a", "b", "c"} {
		e.Check(e.TryAcquire(other, key).Release(e.Ctx))
	}
	for _, keys := range [][]string{nil, {"a", ""}} {
		if _, err := l.AcquireAll(e.Ctx, keys); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("keys %q: %v", keys, err)
		}
	}
}

func togetherWithoutDeadlock[Tx any](e *env[Tx]) {
	lockers := []*sqllock.Locker[Tx]{e.locker("0"), e.locker("1"), e.locker("2")}
	keys := []string{"a", "b", "c", "d"}
	var running sync.WaitGroup
	holders := make([]int, len(keys))
	var mu sync.Mutex
	for g := range 12 {
		running.Go(func() {
			for n := range 4 {
				mine := []string{keys[(g+n)%4], keys[(g+n+1)%4], keys[(g+2*n)%4]}
				all, err := lockers[g%3].AcquireAll(e.Ctx, mine)
				if err != nil {
					e.Error(err)
					return
				}
				count := func(d int) {
					mu.Lock()
					defer mu.Unlock()
					for _, lease := range all.All() {
						i := slices.Index(keys, lease.Key())
						if holders[i] += d; holders[i] > 1 {
							e.Errorf("%s is held %d times", lease.Key(), holders[i])
						}
					}
				}
				count(1)
				count(-1)
				if err := all.Release(e.Ctx); err != nil {
					e.Error(err)
				}
			}
		})
	}
	running.Wait()
}

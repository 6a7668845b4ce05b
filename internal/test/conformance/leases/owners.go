package leases

import (
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// owners checks that the locks of one owner are not those of another, regardless of the key, and that no
// call of one owner reaches a lock of another.
func owners[Tx any](e *env[Tx]) {
	e.AnyOwner()
	anna, ben := e.locker("one").For("anna"), e.locker("two").For("ben")
	lease := e.TryAcquire(anna, "key")
	// Two owners' first tokens are equal if a clock of milliseconds (SQLite) stands still between
	// them; the second one of a key is above both.
	e.Check(e.TryAcquire(ben, "key").Release(e.Ctx))
	beside := e.TryAcquire(ben, "key")
	e.TryAcquire(e.locker("three"), "key")
	if held := e.wantHeld(e.locker("four").For("anna"), "key"); held.Holder != "one" || held.Token != lease.Token() {
		e.Errorf("got %+v", held)
	}
	if owner := lease.Term().Owner(); owner != "anna" {
		e.Errorf("the term is of %q", owner)
	}
	if had, err := ben.ForceRelease(e.Ctx, "key", lease.Token(), holdfast.Actor{By: "test", Reason: "a test"}); err != nil || had {
		e.Errorf("ben took anna's lock: %v, %v", had, err)
	}
	if info, found, err := ben.Inspect(e.Ctx, "key"); err != nil || !found || info.Owner != "ben" || info.Holder != "two" {
		e.Errorf("got %+v, %v, %v", info, found, err)
	}

	// A guard takes its own owner's terms only, and a term is worth nothing under another owner.
	for _, term := range []sqllock.Term{lease.Term(), e.locker("five").For("carl").Term("key", lease.Token())} {
		tx := e.BeginTx(sql.LevelDefault)
		if err := ben.Guard(e.Ctx, tx, term); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("ben guards a term of %q: %v", term.Owner(), err)
		}
		e.EndTx(tx, false)
	}
	tx := e.BeginTx(sql.LevelDefault)
	if err := ben.Guard(e.Ctx, tx, ben.Term("key", lease.Token())); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("ben guards with anna's token: %v", err)
		e.EndTx(tx, false)
	}
	tx = e.BeginTx(sql.LevelDefault)
	e.Check(anna.Guard(e.Ctx, tx, lease.Term()))
	e.EndTx(tx, true)
	e.Check(lease.Release(e.Ctx))
	if err := beside.Context().Err(); err != nil {
		e.Errorf("anna's release ended ben's lease: %v", err)
	}

	for _, bad := range []string{strings.Repeat("o", 129), "a\x00b", "\xff"} {
		l := e.locker("six").For(bad)
		_, err := l.TryAcquire(e.Ctx, "key")
		_, fair := fairlock.New(l).TryAcquire(e.Ctx, "key")
		if !errors.Is(err, holdfast.ErrInvalid) || !errors.Is(fair, holdfast.ErrInvalid) {
			e.Errorf("the owner %.9q is not refused: %v, %v", bad, err, fair)
		}
	}
}

// ownersOfOtherLocks checks the same of fair locks, semaphores, row-lock keys and named values.
func ownersOfOtherLocks[Tx any](e *env[Tx]) {
	e.AnyOwner()
	anna, ben := e.locker("one").For("anna"), e.locker("two").For("ben")
	for _, l := range []*sqllock.Locker[Tx]{anna, ben} {
		fair := fairlock.New(l)
		_, err := fair.TryAcquire(e.Ctx, "key")
		e.Check(err)
		s, err := fair.Semaphore("key", 1)
		e.Check(err)
		_, err = s.TryAcquire(e.Ctx, 1)
		e.Check(err)
		if q, err := fair.Queue(e.Ctx, "key"); err != nil || q.Owner != l.Owner() || len(q.Tickets) != 1 {
			e.Errorf("got %+v, %v", q, err)
		}
		if _, err := fair.TryAcquire(e.Ctx, "key"); !errors.Is(err, sqllock.ErrHeld) {
			e.Errorf("%s's own lock: %v", l.Owner(), err)
		}
	}
	for kind, list := range map[string]func(fairlock.ListOptions) (owners []string){
		"fair locks": func(o fairlock.ListOptions) (owners []string) {
			for q, err := range fairlock.New(anna).Queues(e.Ctx, o) {
				e.Check(err)
				owners = append(owners, q.Owner)
			}
			return owners
		},
		"semaphores": func(o fairlock.ListOptions) (owners []string) {
			for q, err := range fairlock.New(anna).Semaphores(e.Ctx, o) {
				e.Check(err)
				owners = append(owners, q.Owner)
			}
			return owners
		},
	} {
		own, all, behind := list(fairlock.ListOptions{}), list(fairlock.ListOptions{EveryOwner: true}), list(fairlock.ListOptions{EveryOwner: true, After: fairlock.Queue{Owner: "anna", Key: "key"}})
		if !slices.Equal(own, []string{"anna"}) || !slices.Equal(all, []string{"anna", "ben"}) || !slices.Equal(behind, []string{"ben"}) {
			e.Errorf("%s: own %v, all %v, behind anna's %v", kind, own, all, behind)
		}
	}

	keys := e.RowLocker()
	tx := e.BeginTx(sql.LevelDefault)
	e.Check(keys.For("anna").LockTx(e.Ctx, tx, "key", holdfast.NoWait))
	if e.DB.Capabilities().RowLocks {
		other := e.BeginTx(sql.LevelDefault)
		e.Check(keys.For("ben").LockTx(e.Ctx, other, "key", holdfast.NoWait))
		if err := keys.For("anna").LockTx(e.Ctx, other, "key", holdfast.NoWait); !errors.Is(err, rowlock.ErrLockNotAvailable) {
			e.Errorf("anna's key: %v", err)
		}
		e.EndTx(other, true)
	}
	e.EndTx(tx, true)

	values, err := register.New(e.Ctx, e.DB)
	e.Check(err)
	for _, owner := range []string{"", "anna", "ben"} {
		if _, err := values.For(owner).Get(e.Ctx, "name"); !errors.Is(err, optimistic.ErrNotFound) {
			e.Errorf("%q has a value: %v", owner, err)
		}
		_, err := values.For(owner).Create(e.Ctx, "name", []byte(owner))
		e.Check(err)
	}
	if got, err := values.For("anna").Get(e.Ctx, "name"); err != nil || string(got.Value) != "anna" {
		e.Errorf("got %+v, %v", got, err)
	}
}

// ownersTogether lets goroutines of two processes acquire, renew, release and guard the keys of many
// owners at once, so that batches have keys of several.
func ownersTogether[Tx any](e *env[Tx]) {
	e.ManyOwners()
	lockers := []*sqllock.Locker[Tx]{e.locker("one"), e.locker("two")}
	var mu sync.Mutex
	holding := map[string]int{}
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			owner, key := strconv.Itoa(i%5), strconv.Itoa(i%3)
			for range 3 {
				lease, err := lockers[i%2].For(owner).Acquire(e.Ctx, key)
				if err != nil {
					e.Error(err)
					return
				}
				count := func(by int) int {
					mu.Lock()
					defer mu.Unlock()
					holding[owner+"/"+key] += by
					return holding[owner+"/"+key]
				}
				if n := count(1); n != 1 {
					e.Errorf("%d have the key %s of %s", n, key, owner)
				}
				count(-1)
				if err := lease.Release(e.Ctx); err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	last := ""
	for info, err := range lockers[0].List(e.Ctx, sqllock.ListOptions{Free: true, EveryOwner: true}) {
		e.Check(err)
		if at := info.Owner + "/" + info.Key; at <= last {
			e.Errorf("%s comes after %s", at, last)
		} else {
			last = at
		}
		seen[info.Owner]++
	}
	if len(seen) != 5 || seen["3"] != 3 {
		e.Errorf("listed %v", seen)
	}
	n := 0
	for _, err := range lockers[0].List(e.Ctx, sqllock.ListOptions{Free: true, EveryOwner: true, After: sqllock.Info{Owner: "3", Key: "1"}}) {
		e.Check(err)
		n++
	}
	if n != 4 {
		e.Errorf("%d come after the key 1 of 3", n)
	}
}

package property_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/property"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
)

// leases is the model of leases: what the row of each key should be.
type leases struct {
	db

	lockers []*sqllock.Locker[*sql.Tx] // of two processes
	reaper  *reaper.Reaper
	keys    []*leaseKey
	terms   []*term
}

// leaseKey is a key, and its row.
type leaseKey struct {
	owner, key string
	// row is whether there is one; holder has the lock, also past its expiry; old is whether its expiry was long ago.
	row, old bool
	holder   *term
	// token is the row's; last is the greatest that the key ever had.
	token, last int64
}

// term is one grant.
type term struct {
	*leaseKey

	lease *sqllock.Lease
	token int64
	// released is set after Release, and result is what it has returned.
	released bool
	result   error
}

// TestLeasesFollowTheirModel acquires, releases, forces, guards, renews, sweeps and lets expire in any order, in two processes and on keys that are
// easily taken for each other: a key has one holder, its tokens strictly rise, also after its row was deleted and where the clock was set back, and a term that has ended stays so.
func TestLeasesFollowTheirModel(t *testing.T) {
	t.Parallel()
	d := onSQLite(t)
	all := leases{db: d, lockers: d.Lockers(2, sqllock.Options{TTL: time.Hour}), reaper: d.Reaper(quick)}
	property.Check(t, func(t *rapid.T) {
		m := all
		m.exec(t, `DELETE FROM holdfast_locks`)
		m.exec(t, `UPDATE holdfast_floor SET token = 0`)
		owners, keys := names(t, 2), confused(t, 2, sqllock.MaxKey)
		for i, key := range keys {
			for _, owner := range owners[i:] {
				m.keys = append(m.keys, &leaseKey{owner: owner, key: key})
			}
		}
		defer m.end()
		t.Repeat(map[string]func(*rapid.T){
			"": m.check, "acquire": m.acquire, "acquire again": m.acquire, "release": m.release, "expire": m.expire, "force": m.force, "guard": m.guard, "renew": m.renew, "sweep": m.sweep, "clock": m.clock,
		})
	})
}

// end releases what a draw has left.
func (m *leases) end() {
	for _, x := range m.terms {
		_ = x.lease.Release(m.Ctx)
	}
}

func (m *leases) key(t *rapid.T) *leaseKey { return rapid.SampledFrom(m.keys).Draw(t, "key") }

func (m *leases) locker(t *rapid.T, owner string) *sqllock.Locker[*sql.Tx] {
	return rapid.SampledFrom(m.lockers).Draw(t, "process").For(owner)
}

func (m *leases) term(t *rapid.T) *term {
	if len(m.terms) == 0 {
		t.Skip("no term yet")
	}
	return m.terms[len(m.terms)-1-rapid.IntRange(0, len(m.terms)-1).Draw(t, "term")]
}

// held reports whether the lock is held and not expired.
func (k *leaseKey) held() bool { return k.holder != nil && !k.old }

func (m *leases) acquire(t *rapid.T) {
	k := m.key(t)
	lease, err := m.locker(t, k.owner).TryAcquire(m.Ctx, k.key)
	var held *sqllock.HeldError
	switch {
	case k.held() && (!errors.As(err, &held) || held.Token != k.token || held.Key != k.key):
		t.Fatalf("%q is held with token %d: %v, %+v", k.key, k.token, err, held)
	case k.held():
		return
	case err != nil:
		t.Fatalf("%q is free: %v", k.key, err)
	case lease.Token() <= k.last:
		t.Fatalf("token %d after %d", lease.Token(), k.last)
	case lease.Key() != k.key || lease.Context().Err() != nil:
		t.Fatalf("%q: %q, %v", k.key, lease.Key(), lease.Context().Err())
	}
	k.row, k.old, k.token, k.last = true, false, lease.Token(), lease.Token()
	k.holder = &term{leaseKey: k, lease: lease, token: lease.Token()}
	m.terms = append(m.terms, k.holder)
}

// release may come late, and twice.
func (m *leases) release(t *rapid.T) {
	x := m.term(t)
	err := x.lease.Release(m.Ctx)
	switch {
	case x.released:
		if !errors.Is(err, x.result) {
			t.Fatalf("the second release: %v, want %v", err, x.result)
		}
		return
	case x.holder == x && err != nil, x.holder != x && !errors.Is(err, sqllock.ErrLost):
		t.Fatalf("release of token %d, which has the lock is %v: %v", x.token, x.holder == x, err)
	case x.lease.Context().Err() == nil:
		t.Fatal("the context goes on after a release")
	}
	if x.holder == x {
		x.holder, x.old = nil, false
	}
	x.released, x.result = true, err
}

// expire lets the time of a key pass.
func (m *leases) expire(t *rapid.T) { m.pass(t, []*leaseKey{m.key(t)}) }

func (m *leases) pass(t *rapid.T, keys []*leaseKey) {
	for _, k := range keys {
		m.exec(t, `UPDATE holdfast_locks SET expires_at = expires_at - $1 WHERE owner = $2 AND name = $3`, 3*time.Hour.Microseconds(), k.owner, k.name())
		k.old = k.row
	}
}

func (k *leaseKey) name() []byte { return []byte("l" + k.key) }

func (m *leases) force(t *rapid.T) {
	k := m.key(t)
	token := rapid.SampledFrom([]int64{0, k.token, k.token - 1}).Draw(t, "token")
	had, err := m.locker(t, k.owner).ForceRelease(m.Ctx, k.key, token, holdfast.Actor{By: "test", Reason: "a test"})
	property.Must(t, err)
	if want := k.holder != nil && (token == 0 || token == k.token); had != want {
		t.Fatalf("%q was taken away is %v, want %v", k.key, had, want)
	}
	if !had {
		return
	}
	info, _, err := m.lockers[0].For(k.owner).Inspect(m.Ctx, k.key)
	property.Must(t, err)
	if info.Token <= k.last || info.Forced.Reason != "a test" {
		t.Fatalf("after token %d: %+v", k.last, info)
	}
	k.holder, k.old, k.token, k.last = nil, false, info.Token, info.Token
}

// guard guards a transaction with any term that there ever was: only one that still has the row passes.
func (m *leases) guard(t *rapid.T) {
	x := m.term(t)
	l := m.locker(t, x.owner)
	ran := false
	err := m.DB.InTx(m.Ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := l.Guard(ctx, tx, l.Term(x.key, x.token)); err != nil {
			return err
		}
		ran = true
		return nil
	})
	if x.holder == x && (err != nil || !ran) || x.holder != x && (!errors.Is(err, sqllock.ErrLost) || ran) {
		t.Fatalf("guarded by token %d, which has the lock is %v: %v", x.token, x.holder == x, err)
	}
}

// renew renews all leases of a process. It revives none.
func (m *leases) renew(t *rapid.T) {
	locker := rapid.SampledFrom(m.lockers).Draw(t, "process")
	access.Locker[interface{ RenewAll(ctx context.Context) }](locker).RenewAll(m.Ctx)
}

func (m *leases) sweep(t *rapid.T) {
	if rapid.Bool().Draw(t, "late") {
		m.pass(t, m.keys)
	}
	want := map[string]int64{}
	for _, k := range m.keys {
		if k.row && k.old {
			want["locks"]++
			k.row, k.old, k.holder, k.token = false, false, nil, 0
		}
	}
	if got := m.db.sweep(t, m.reaper); !maps.Equal(got, want) {
		t.Fatalf("swept %v, want %v", got, want)
	}
}

// clock sets the clock back by a day, as what the rows of free keys show: their tokens are ahead of it.
func (m *leases) clock(t *rapid.T) {
	const day = int64(24 * time.Hour / time.Microsecond)
	for _, k := range m.keys {
		if k.row && k.holder == nil {
			m.exec(t, `UPDATE holdfast_locks SET token = token + $1 WHERE owner = $2 AND name = $3`, day, k.owner, k.name())
			k.token, k.last = k.token+day, k.token+day
		}
	}
}

// check compares what List shows with the model.
func (m *leases) check(t *rapid.T) {
	shown := map[[2]string]sqllock.Info{}
	for info, err := range m.lockers[0].List(m.Ctx, sqllock.ListOptions{Free: true, EveryOwner: true}) {
		property.Must(t, err)
		shown[[2]string{info.Owner, info.Key}] = info
	}
	rows := 0
	for _, k := range m.keys {
		info, found := shown[[2]string{k.owner, k.key}]
		if found != k.row || info.Token != k.token || info.Held != k.held() {
			t.Fatalf("%q of %q is %+v, found %v, want %+v", k.key, k.owner, info, found, k)
		}
		if found {
			rows++
		}
	}
	if len(shown) != rows {
		t.Fatalf("%d rows, want %d", len(shown), rows)
	}
}

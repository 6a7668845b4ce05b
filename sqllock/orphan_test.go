package sqllock

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// TestOrphan checks that a grant whose session was lost before its answer came is no lease: another
// process may have taken the lock over.
func TestOrphan(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		l, _, _ := openLocker(t, engine, Options{TTL: time.Hour})
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		s, err := l.settings(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		name, err := lockname.Of(lockname.Lease, core.Owner{}, "key")
		if err != nil {
			t.Fatal(err)
		}
		lost := keeper.NewProcess()
		lost[len(lost)-1] |= 1 // of a session
		if !lost.InSession() {
			t.Fatal("it should be the id of a session")
		}
		lease, err := l.leases.begin(keeper.Attempt{Name: name, ID: lost.NewAttemptID(), TTL: time.Hour}, s, 1, time.Now(), true)
		if lease != nil || err != nil {
			t.Errorf("got %v, %v", lease, err)
		}
	})
}

// TestSessionOfAnotherServer checks which sessions a process takes for ended: those of its own server, whose
// lock is free there. It knows nothing about those of another server.
func TestSessionOfAnotherServer(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if !slices.Contains([]dbtest.Engine{dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB}, engine) {
			return // it has no sessions: see TestSessionRefused
		}
		o := Options{TTL: time.Hour, ReleaseOnDisconnect: true}
		one, _, _ := openLocker(t, engine, o)
		t.Cleanup(func() { _ = one.Close(context.Background()) })
		two, err := New(t.Context(), one.db, o)
		if err != nil {
			t.Fatal(err)
		}
		asks, lives := one.leases.k, two.leases.k.Identity()
		gone, elsewhere := lives, lives // as lives, with a lock without a holder
		gone[0]++
		elsewhere[4]++
		for _, c := range []struct {
			what string
			of   keeper.Process
			want bool
		}{{"lives", lives, false}, {"is gone", gone, true}, {"is of another server", elsewhere, false}, {"asks", asks.Identity(), false}} {
			if got := asks.Liveness.Ended(t.Context(), c.of); got != c.want {
				t.Errorf("a session that %s has ended: %t", c.what, got)
			}
		}
		if err := two.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		dbtest.Eventually(t, "it is seen to have ended", func() bool { return asks.Liveness.Ended(t.Context(), lives) })
	})
}

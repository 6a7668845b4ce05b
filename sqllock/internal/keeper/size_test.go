//go:build !race

// Its goroutines are ordered by virtual time (testing/synctest), which the race detector does not know.

package keeper

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestRenewalSize renews more leases than one statement can in time. The next statements renew fewer, so that none
// ends; and as many as before once they are fast again.
func TestRenewalSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := true
		f := &fake{renew: func(ctx context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
			if slow && len(batch) > renewBatch/renewLess {
				<-ctx.Done()
				return nil, nil, ctx.Err()
			}
			return all(batch), nil, nil
		}}
		f.keep(t)
		var leases []*Lease
		for i := range renewBatch + 1 {
			leases = append(leases, f.lease(fmt.Sprint(i), false))
		}
		time.Sleep(2 * ttl)
		slow = false
		before := len(f.asks())
		time.Sleep(3 * ttl)
		most := 0
		for _, a := range f.asks()[before:] {
			most = max(most, a.n)
		}
		if most != renewBatch {
			t.Errorf("a statement renews %d, want %d", most, renewBatch)
		}
		ended := 0
		for _, l := range leases {
			if l.Context().Err() != nil {
				ended++
			}
		}
		if ended > 0 {
			t.Errorf("%d leases ended", ended)
		}
	})
}

// TestGrantedInRenewal grants a ticket without renewals while one of those of its wait is under way: it is the
// last one, and moves no window.
func TestGrantedInRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{renew: func(_ context.Context, batch []*Lease) (map[AttemptID]bool, map[AttemptID]time.Duration, error) {
			time.Sleep(2 * time.Second)
			return all(batch), nil, nil
		}}
		k := f.keep(t)
		l := f.newLease("key", true, time.Now())
		f.locked(func() { k.KeepWaiting(l, time.Now()) })
		time.Sleep(ttl/renewPart + time.Second)
		f.locked(func() { k.Grant(l) })
		if ended, asks := f.ends(l), f.asks(); ended != ttl-margin || len(asks) != 1 {
			t.Errorf("it ended after %v, and was renewed at %v", ended, asks)
		}
	})
}

//go:build !race

package keeper

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockname"
)

// TestWanted checks when the process reads whether calls wait: never for leases that do not ask, once each
// half second for all that do, and no longer when they know it or have ended.
func TestWanted(t *testing.T) {
	t.Parallel()
	closed := func(l *Lease) bool {
		select {
		case <-l.Wanted():
			return true
		default:
			return false
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		var leases []*Lease
		for i := range 300 {
			leases = append(leases, f.lease(fmt.Sprint("key ", i), false))
		}
		looks := func(pause time.Duration) (n []int) {
			time.Sleep(pause)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, l := range f.looks {
				n = append(n, l.n)
			}
			f.looks = nil
			return n
		}
		if n := looks(time.Minute); n != nil {
			t.Errorf("%d looks for leases that did not ask", n)
		}
		if closed(leases[0]) || closed(leases[1]) {
			t.Error("nobody waits")
		}
		f.down = errDown
		if n := looks(wantedEvery * 21 / 10); !slices.Equal(n, []int{2, 2}) {
			t.Errorf("%d looks for two leases in a second", n)
		}
		f.mu.Lock()
		f.down, f.waited = nil, map[lockname.Name]bool{leases[1].attempt.Name: true}
		f.mu.Unlock()
		if n := looks(wantedEvery); !slices.Equal(n, []int{2}) || closed(leases[0]) || !closed(leases[1]) {
			t.Errorf("%d looks; the first is wanted: %t, the second: %t", n, closed(leases[0]), closed(leases[1]))
		}
		for _, l := range leases {
			l.Wanted()
		}
		if n := looks(wantedEvery); !slices.Equal(n, []int{256, 43}) && !slices.Equal(n, []int{1, 256, 42}) {
			t.Errorf("%d looks for 299 leases", n)
		}
		k.Forget(leases)
		looks(wantedEvery) // the one that was scheduled
		if n := looks(time.Minute); n != nil {
			t.Errorf("%d looks for leases that have ended", n)
		}
		if closed(leases[0]) {
			t.Error("the end of a lease closed it")
		}
		f.here = true
		if l := f.lease("here", false); !closed(l) || looks(time.Minute) != nil {
			t.Error("a call of this process waits")
		}
	})
}

//go:build !race

// Its goroutines are ordered by virtual time (testing/synctest), which the race detector does not know.

package keeper

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// lives is a context that counts what waits for its end.
type lives struct {
	context.Context

	waiting atomic.Int32
	done    chan struct{}
}

func (l *lives) Done() <-chan struct{} { return l.done }

// AfterFunc is what context.AfterFunc calls.
func (l *lives) AfterFunc(func()) (stop func() bool) {
	l.waiting.Add(1)
	return func() bool { return l.waiting.Add(-1) == 0 }
}

// TestWithinLongCall ends a lease before the call that it is within: a call that lasts as long as the program
// keeps nothing of it.
func TestWithinLongCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := renewsAll()
		k := f.keep(t)
		call := &lives{Context: t.Context(), done: make(chan struct{})}
		name, err := lockname.Of(lockname.Lease, core.Owner{}, "key")
		if err != nil {
			t.Fatal(err)
		}
		l := k.NewLease(f.kind, 7, "lease", lockstmt.NewAttempt(name, k.NewAttemptID(), ttl),
			Settings{TTL: ttl, Margin: margin, Values: t.Context(), Within: call}, time.Now())
		f.locked(func() { k.Keep(l) })
		if n := call.waiting.Load(); n != 1 {
			t.Errorf("%d wait for the end of the call", n)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := call.waiting.Load(); n != 0 {
			t.Errorf("%d wait for the end of the call after that of the lease", n)
		}
	})
}

package fairlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// asking is a context whose Err asks something, once it has ended.
type asking struct {
	context.Context
	ended chan struct{}
	ask   func()
}

func (a asking) Done() <-chan struct{} { return a.ended }

func (a asking) Err() error {
	select {
	case <-a.ended:
		a.ask()
		return context.Canceled
	default:
		return nil
	}
}

// TestWithinAsks ends the context of Do while its ticket is written. The context's Err asks the same Locker, as the context of
// several leases does.
func TestWithinAsks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		within := asking{context.Background(), make(chan struct{}), nil}
		end := sync.OnceFunc(func() { close(within.ended) })
		var ends atomic.Bool
		e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if ends.Load() && strings.HasSuffix(s.Name, "enter") {
				end()
			}
		}}})
		locks, err := sqllock.New(e.Ctx, e.DB)
		e.Check(err)
		e.Cleanup(func() { _ = locks.Close(context.Background()) })
		held, err := locks.Acquire(e.Ctx, "held")
		e.Check(err)
		within.ask = func() { held.Wanted() }
		ends.Store(true)
		done := make(chan error, 1)
		go func() {
			done <- fairlock.New(locks).Do(within, "fair", func(context.Context, *sqllock.Lease) error { return nil })
		}()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) { // it may have been granted before
				t.Error(err)
			}
		case <-time.After(dbtest.Hang):
			t.Fatal("Do hangs")
		}
	})
}

package simulation

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/sqllock"
)

// lockers are the processes of a scene of locks, with a Locker each, and what their callers have.
type lockers struct {
	of     *world
	all    []*locker // by process
	held   map[*caller]*holding
	grants int
}

// holding is what a caller has.
type holding struct{ lease *lease }

func newLockers(w *world) lockers { return lockers{of: w, held: map[*caller]*holding{}} }

// open opens a Locker on the handle of a process.
func (w *lockers) open(t *testing.T, p int) { w.all = append(w.all, openLocker(t, handles[p])) }

func openLocker(t *testing.T, a *adapter) *locker {
	l, err := sqllock.New(t.Context(), a.db, sqllock.Options{TTL: ttl, Margin: margin, Holder: fmt.Sprint("p", a.id)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// begins returns the context of a caller's next acquisition.
func (w *lockers) begins(c *caller) *holding {
	c.ctx, c.cancel = context.WithCancel(context.WithValue(context.Background(), callerKey{}, c.id))
	w.of.note(string(c.call), c.id, c.key)
	h := &holding{}
	w.held[c] = h
	return h
}

// releases begins the release of what a caller has.
func (w *lockers) releases(c *caller) func() {
	h := w.held[c]
	c.call = release
	w.of.note("release", c.id, c.key)
	return func() { c.err = h.lease.Release(context.WithValue(context.Background(), callerKey{}, c.id)) }
}

// trusts reports whether a caller has a lease whose context has not ended. While Acquire runs it has none.
func (w *lockers) trusts(c *caller) bool { return c.owes && w.held[c].lease.Context().Err() == nil }

func (w *lockers) done() int { return w.grants }

func (w *lockers) close() error {
	for _, l := range w.all {
		if err := l.Close(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

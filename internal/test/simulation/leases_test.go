package simulation

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	ttl    = 200 * time.Millisecond
	margin = ttl / 10
)

const (
	acquire    call = "acquire"
	tryAcquire call = "try"
	release    call = "release"
)

// leases is the scene of leases: processes with a Locker each.
type leases struct {
	*world

	store   *store
	lockers []*locker
	keys    []string
	held    map[*caller]*holding
	tokens  map[string]int64 // the last by key
	grants  int
}

// holding is what a caller has.
type holding struct {
	lease *lease
	live  bool // the lease's context had not ended when Release was called
}

func leaseScene(w *world) scene {
	return &leases{world: w, store: newStore(), held: map[*caller]*holding{}, tokens: map[string]int64{}}
}

func (w *leases) open(t *testing.T, p int) {
	l, err := sqllock.New(t.Context(), handles[p].db, sqllock.Options{TTL: ttl, Margin: margin, Holder: fmt.Sprint("p", p)})
	if err != nil {
		t.Fatal(err)
	}
	w.lockers = append(w.lockers, l)
}

func (w *leases) arm(keys int) { w.keys = []string{"a", "b"}[:keys] }

func (w *leases) leaves(c *caller) bool { return c.call == acquire }

// next begins the release of what the caller has, or an acquisition.
func (w *leases) next(c *caller) func() {
	if c.owes {
		h := w.held[c]
		c.call, h.live = release, h.lease.Context().Err() == nil
		w.note("release", c.id, c.key)
		return func() { c.err = h.lease.Release(context.WithValue(context.Background(), callerKey{}, c.id)) }
	}
	l := w.lockers[c.process]
	c.call, c.key = acquire, pick(w.world, w.keys)
	if w.rng.IntN(4) == 0 {
		c.call = tryAcquire
	}
	opts := sqllock.AcquireOptions{NoRenewal: w.rng.IntN(8) == 0}
	c.ctx, c.cancel = context.WithCancel(context.WithValue(context.Background(), callerKey{}, c.id))
	f := l.Acquire
	if c.call == tryAcquire {
		f = l.TryAcquire
	}
	w.note(string(c.call), c.id, c.key)
	h := &holding{}
	w.held[c] = h
	return func() { h.lease, c.err = f(c.ctx, c.key, opts) }
}

func (w *leases) run(s *statement) (known bool) {
	s.answer, known = w.store.run(s.name, s.text, s.args, micros(time.Now()))
	return known
}

// Each statement of leases commits on its own, and waits for no other one.
func (*leases) waits(*statement) bool         { return false }
func (*leases) allows(*statement, fault) bool { return true }
func (*leases) cuts() []*conn                 { return nil }
func (*leases) cut(*conn)                     {}
func (*leases) mortal() bool                  { return false }
func (*leases) kill(int)                      {}
func (*leases) more() bool                    { return false }
func (w *leases) done() int                   { return w.grants }

func (w *leases) struck(s *statement, _ error) { s.conn.cut = w.rng.IntN(2) == 0 }

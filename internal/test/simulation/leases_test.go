package simulation

import (
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
	lockers

	store  *store
	keys   []string
	tokens map[string]int64 // the last by key
}

func leaseScene(w *world) scene {
	return &leases{world: w, lockers: newLockers(w), store: newStore(), tokens: map[string]int64{}}
}

func (w *leases) open(t *testing.T, p int) { w.lockers.open(t, p) }

func (w *leases) arm(keys int) { w.keys = []string{"a", "b"}[:keys] }

func (w *leases) leaves(c *caller) bool { return c.call == acquire }

// next begins the release of what the caller has, or an acquisition.
func (w *leases) next(c *caller) func() {
	if c.owes {
		return w.releases(c)
	}
	l := w.all[c.process]
	c.call, c.key = acquire, pick(w.world, w.keys)
	if w.rng.IntN(4) == 0 {
		c.call = tryAcquire
	}
	opts := sqllock.AcquireOptions{NoRenewal: w.rng.IntN(8) == 0}
	f := l.Acquire
	if c.call == tryAcquire {
		f = l.TryAcquire
	}
	h := w.begins(c)
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

func (w *leases) struck(s *statement, _ error) { s.conn.cut = w.rng.IntN(2) == 0 }

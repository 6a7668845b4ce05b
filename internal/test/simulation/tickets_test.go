package simulation

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

const (
	share    call = "share"
	tryShare call = "try to share"
)

// longTTL is a TTL within which no ticket expires: what a caller leaves behind is seen.
const longTTL = 20 * time.Second

// tickets is the scene of locks with a line: processes with a Locker each, which are killed and begin again.
type tickets struct {
	*database
	lockers

	t        *testing.T
	adapters []*adapter // by process
	fairs    []*fairlock.Locker[*tx]
	dead     []*locker
	lines    []*line
	asked    map[*caller]*asked
	seen     []record // the tickets that were committed at the last look
	ttl      time.Duration
	kills    int // to come in this episode
	missed   int // losses when the episode began
	untidy   bool
	rounds   int // since the faults ended
}

// line is a key in an episode: a fair lock, or a semaphore.
type line struct {
	key, row string
	permits  int64 // of the semaphore; 0 for a fair lock
	mixed    bool  // some callers name another number
	passages map[int64]*passage
	last     int64 // the last token that entered
	shared   int64 // the last token that a caller got, and
	alone    int64 // that one got who had the lock alone
	moved    time.Time
}

// passage is a ticket from its entry on.
type passage struct {
	token, units, capacity int64
	of                     *adapter
	granted                bool
	waited                 bool // it was not granted when it entered
	end                    end
	late                   bool // it was over when it ended
	taken                  bool // others got its units since it ended
	caller                 int  // who got it, plus one
}

// cleared is how a ticket ends that another call removes.
const cleared end = "cleared after its expiry"

// asked is what a caller asks for, and what it got.
type asked struct {
	line        *line
	n, capacity int64
	of          *adapter
	crowded     bool      // there was no room for it at some time
	gaveUp      time.Time // when its context ended
	passage     *passage
	taken       bool // others had its units already when Release was called
}

func ticketScene(w *world) scene {
	return &tickets{database: &database{world: w, records: newTickets(), timeout: 5 * time.Second}, lockers: newLockers(w), asked: map[*caller]*asked{}}
}

// open starts a process.
func (w *tickets) open(t *testing.T, p int) {
	w.t, handles[p].life = t, &life{}
	w.adapters = append(w.adapters, handles[p])
	w.lockers.open(t, p)
	w.fairs = append(w.fairs, fairlock.New(w.all[p]))
}

// arm begins an episode. Some have kills, and some have a long TTL and no kills.
func (w *tickets) arm(keys int) {
	w.steps, w.odds, w.haste = 250, []int{6, 20, 1 << 30}[w.rng.IntN(3)], []int{1, 3}[w.rng.IntN(2)]
	w.ttl = []time.Duration{ttl, ttl, longTTL}[w.rng.IntN(3)]
	if w.kills = 0; !w.calm && w.ttl == ttl {
		w.kills = max(0, w.rng.IntN(6)-3)
	}
	w.patience, w.missed, w.untidy, w.rounds = patience+w.ttl, w.losses, false, 0
	if w.rng.IntN(2) == 0 {
		w.records.committed, w.seen = newTickets().committed, nil
		if w.records.logs {
			w.records.log = append(w.records.log, logged{name: "forget all"})
		}
	}
	w.lines = nil
	for _, key := range []string{"a", "b"}[:keys] {
		l := &line{key: key, row: "f" + key, passages: map[int64]*passage{}, moved: time.Now()}
		if w.rng.IntN(2) == 0 {
			l.row, l.permits, l.mixed = "s"+key, int64(2+w.rng.IntN(2)), w.rng.IntN(6) == 0
		}
		w.lines = append(w.lines, l)
	}
}

func (*tickets) leaves(c *caller) bool { return c.call == acquire || c.call == share }
func (w *tickets) mortal() bool        { return w.kills > 0 }

// kill ends a process, and begins the next one.
func (w *tickets) kill(p int) {
	w.kills--
	w.frozen[p] = time.Time{}
	dead := w.adapters[p]
	for _, c := range w.callers {
		if c.process == p && c.owes && !c.busy {
			c.owes = false
			c.cancel()
		}
	}
	w.die(p, dead.life, func(s *statement) bool { return s.conn.of == dead })
	a := &adapter{id: p, world: w.world, life: &life{}}
	var err error
	if a.db, err = access.Open(context.Background(), &db{}, core.Adapter[*tx](a), []holdfast.Options{{SingleOwner: true}}); err != nil {
		w.t.Fatal(err)
	}
	w.dead = append(w.dead, w.all[p])
	w.adapters[p], w.all[p] = a, openLocker(w.t, a)
	w.fairs[p] = fairlock.New(w.all[p])
	w.frozen[p] = time.Now().Add(time.Duration(w.rng.IntN(20)) * tick)
}

// next begins the release of what the caller has, or an acquisition.
func (w *tickets) next(c *caller) func() {
	if c.owes {
		a := w.asked[c]
		a.taken = a.passage.taken
		return w.releases(c)
	}
	l := pick(w.world, w.lines)
	a := &asked{line: l, n: fairlock.MaxPermits, capacity: fairlock.MaxPermits, of: w.adapters[c.process]}
	c.call, c.key = []call{acquire, acquire, acquire, tryAcquire}[w.rng.IntN(4)], l.key
	opts := sqllock.AcquireOptions{NoRenewal: w.rng.IntN(8) == 0, TTL: w.ttl}
	fair := w.fairs[c.process]
	f := map[call]func(context.Context, string, ...sqllock.AcquireOptions) (*lease, error){
		acquire: fair.Acquire, tryAcquire: fair.TryAcquire, share: fair.AcquireShared, tryShare: fair.TryAcquireShared,
	}
	switch {
	case l.permits > 0:
		if a.capacity = l.permits; l.mixed && w.rng.IntN(4) == 0 {
			a.capacity++
		}
		a.n = 1 + int64(w.rng.IntN(int(a.capacity)))
		s, err := fair.Semaphore(l.key, int(a.capacity))
		if err != nil {
			w.t.Fatal(err)
		}
		f[acquire] = func(ctx context.Context, _ string, o ...sqllock.AcquireOptions) (*lease, error) {
			return s.Acquire(ctx, int(a.n), o...)
		}
		f[tryAcquire] = func(ctx context.Context, _ string, o ...sqllock.AcquireOptions) (*lease, error) {
			return s.TryAcquire(ctx, int(a.n), o...)
		}
	case w.rng.IntN(2) == 0:
		c.call, a.n = map[call]call{acquire: share, tryAcquire: tryShare}[c.call], 1
	}
	w.asked[c] = a
	w.crowds(a)
	h, do := w.begins(c), f[c.call]
	w.note("for", l.row, int(a.n), int(a.capacity))
	return func() { h.lease, c.err = do(c.ctx, c.key, opts) }
}

func (w *tickets) run(s *statement) (known bool) {
	known = w.perform(s)
	w.look(s)
	return known
}

// allows: a statement that commits on its own may also run when its caller has its error already.
func (w *tickets) allows(s *statement, f fault) bool {
	return w.database.allows(s, f) || f == later && s.conn.txn == nil
}

// cuts: where statements only take long, no connection is lost.
func (w *tickets) cuts() []*conn {
	if w.odds > 1000 {
		return nil
	}
	return w.database.cuts()
}

func (w *tickets) cut(c *conn) {
	w.losses++
	w.database.cut(c)
}

// more lets the time pass in which a process removes what its callers have left.
func (w *tickets) more() bool {
	if w.ttl != longTTL || w.losses == w.missed && !w.untidy || w.rounds*20*int(tick) > int(longTTL+time.Second) {
		return false
	}
	w.rounds++
	w.sleep(19)
	return true
}

func (w *tickets) close() error {
	for _, l := range w.dead {
		_ = l.Close(context.Background())
	}
	return w.lockers.close()
}

// holders are the callers that trust a lease of a line.
func (w *tickets) holders(l *line) (list []*caller) {
	return slices.DeleteFunc(slices.Clone(w.callers), func(c *caller) bool { return !c.owes || w.asked[c].line != l || !w.trusts(c) })
}

package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	// tick is by how much time passes at least. Every random pause of a lease (polls, retries, backoffs) ends
	// within one, so chance does not decide what has happened when a tick is over.
	tick   = 13 * time.Millisecond
	ttl    = 200 * time.Millisecond
	margin = ttl / 10
	// steps bounds the part of a schedule with faults, and patience the time within which all calls must
	// have ended once there are none.
	steps    = 120
	episodes = 10 // of a schedule: they share its Lockers, which take longer to open than to use
	patience = 8 * time.Second

	rowLength     = 2 // of a row's name: the kind and the key
	attemptLength = 16
)

// world is one schedule: what its seed draws, and what happens.
type world struct {
	seed    uint64
	rng     *rand.Rand
	store   *store
	gate    gate
	lockers []*locker
	callers []*caller
	keys    []string
	calm    bool        // no faults from now on
	spared  bool        // nor before in this episode: every call succeeds
	frozen  []time.Time // by process: its statements are not answered until then
	late    []*statement
	busy    int // errors of a busy database so far
	calls   int

	tokens    map[string]int64 // the last by key
	violation string
	hash      uint64
	trace     []string // if traced
	traced    bool
	grants    int
	episodes  int
	ordinals  map[string]int // attempts, in the order in which the scheduler saw them
	faults    int
	settled   int // calls that have ended
}

// caller is one goroutine of a process.
type caller struct {
	id, process int
	do          chan func()
	left        int // calls to come

	call     call
	busy     bool // a call runs
	finished bool // and has ended since the last look
	key      string
	number   int // of the call
	ctx      context.Context
	cancel   context.CancelFunc
	lease    *lease
	err      error
	live     bool // the lease's context had not ended when Release was called
}

type call string

const (
	acquire    call = "acquire"
	tryAcquire call = "try"
	release    call = "release"
)

// simulate runs the schedule of a seed.
func simulate(t *testing.T, seed uint64, traced bool) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 44)), store: newStore(), tokens: map[string]int64{}, ordinals: map[string]int{}, traced: traced, hash: 14695981039346656037}
	seedChance(seed)
	synctest.Test(t, func(t *testing.T) {
		w.begin(t)
		for range episodes {
			if w.violation == "" {
				w.arm()
				w.fire()
				w.drain()
				w.rest()
			}
		}
		w.end()
	})
	return w
}

// arm begins an episode: with faults or without, on one key or two.
func (w *world) arm() {
	w.episodes++
	w.calm = w.rng.IntN(5) == 0
	w.spared = w.calm
	w.keys = []string{"a", "b"}[:1+w.rng.IntN(5)/3]
	w.busy = 0
	for _, c := range w.callers {
		c.left = 1 + w.rng.IntN(3)
	}
	w.note("schedule", w.episodes)
}

// begin opens the processes and starts the callers.
func (w *world) begin(t *testing.T) {
	n := 1 + w.rng.IntN(8)/3
	for p := range n {
		processes[p].world = w
		l, err := sqllock.New(t.Context(), processes[p].db, sqllock.Options{TTL: ttl, Margin: margin, Holder: fmt.Sprint("p", p)})
		if err != nil {
			t.Fatal(err)
		}
		w.lockers, w.frozen = append(w.lockers, l), append(w.frozen, time.Time{})
		for range 2 + w.rng.IntN(3) {
			c := &caller{id: len(w.callers), process: p, do: make(chan func())}
			w.callers = append(w.callers, c)
			go func() {
				for f := range c.do {
					f()
				}
			}()
		}
	}
}

// choice is something that may happen next.
type choice struct {
	weight int
	do     func()
}

// fire lets things happen, also faults, until all calls are made or the schedule is long enough.
func (w *world) fire() {
	for range steps {
		w.settle()
		if w.violation != "" || !slices.ContainsFunc(w.callers, func(c *caller) bool { return c.busy || c.left > 0 || c.lease != nil }) {
			return
		}
		w.choose()
	}
}

// choose draws what happens next.
func (w *world) choose() {
	var starts, cancels []*caller
	for _, c := range w.callers {
		switch {
		case w.frozen[c.process].After(time.Now()):
		case !c.busy && (c.lease != nil || c.left > 0):
			starts = append(starts, c)
		case c.busy && c.call == acquire && c.ctx.Err() == nil:
			cancels = append(cancels, c)
		}
	}
	ready := w.ready()
	options := [...]choice{
		{6 * min(len(starts), 3), func() { w.start(pick(w, starts)) }},
		{12 * min(len(ready), 2), func() { w.resolve(pick(w, ready)) }},
		{min(len(cancels), 1), func() { w.giveUp(pick(w, cancels)) }},
		{2 * min(len(w.late), 1), func() { w.runLate(w.rng.IntN(len(w.late))) }},
		{4, w.pass},
		{1, w.freeze},
	}
	if w.calm {
		options[5].weight = 0
		if len(ready) > 0 {
			options[4].weight = 0
		}
	}
	sum := 0
	for _, o := range options {
		sum += o.weight
	}
	n := w.rng.IntN(sum)
	for _, o := range options {
		if n -= o.weight; n < 0 {
			o.do()
			return
		}
	}
}

func pick[T any](w *world, list []T) T { return list[w.rng.IntN(len(list))] }

// note adds to the trace.
func (w *world) note(what string, more ...any) {
	for _, b := range []byte(what) {
		w.hash = (w.hash ^ uint64(b)) * 1099511628211
	}
	for _, m := range more {
		if text, is := m.(string); is {
			for _, b := range []byte(text) {
				w.hash = (w.hash ^ uint64(b)) * 1099511628211
			}
		} else if n, is := m.(int); is {
			w.hash = (w.hash ^ uint64(n)) * 1099511628211
		}
	}
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf("%6d ms  %s %v", time.Since(epoch).Milliseconds(), what, more))
	}
}

// epoch is when time begins in a bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) violatef(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.note("VIOLATION", w.violation)
	}
}

// ready returns the statements that the scheduler may run, in an order that does not depend on chance.
func (w *world) ready() []*statement {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	slices.SortStableFunc(w.gate.waiting, func(a, b *statement) int {
		return cmp.Or(strings.Compare(a.key(), b.key()), cmp.Compare(w.first(a), w.first(b)))
	})
	ready := make([]*statement, 0, len(w.gate.waiting))
	for _, s := range w.gate.waiting {
		w.meet(s)
		if !w.frozen[s.conn.of.id].After(time.Now()) {
			ready = append(ready, s)
		}
	}
	return ready
}

// first orders statements for the same rows by when the scheduler first saw their attempts, whose ids are random.
func (w *world) first(s *statement) (n int) {
	for _, a := range s.args {
		if b, is := a.([]byte); is && len(b) == attemptLength {
			n = n<<8 + w.ordinals[string(b)]
		}
	}
	return n
}

// meet gives the attempts of a statement their numbers.
func (w *world) meet(s *statement) {
	for _, a := range s.args {
		if b, is := a.([]byte); is && len(b) == attemptLength && w.ordinals[string(b)] == 0 {
			w.ordinals[string(b)] = len(w.ordinals) + 1
		}
	}
}

// start begins the next call of a caller.
func (w *world) start(c *caller) {
	l := w.lockers[c.process]
	c.busy = true
	if c.lease != nil {
		c.call, c.live = release, c.lease.Context().Err() == nil
		w.note("release", c.id, c.key)
		held := c.lease
		c.do <- func() {
			c.err = held.Release(context.WithValue(context.Background(), callerKey{}, c.id))
			c.finished = true
		}
		return
	}
	c.left--
	w.calls++
	c.call, c.key, c.number = acquire, pick(w, w.keys), w.calls
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
	c.do <- func() { c.lease, c.err = f(c.ctx, c.key, opts); c.finished = true }
}

// giveUp ends the context of a call.
func (w *world) giveUp(c *caller) {
	w.note("give up", c.id)
	w.spared = false // a release in one batch with what it leaves may not know its outcome
	c.cancel()
}

// answer removes a statement from those that wait, and answers it.
func (w *world) answer(s *statement, err error) {
	w.gate.mu.Lock()
	w.gate.waiting = slices.DeleteFunc(w.gate.waiting, func(o *statement) bool { return o == s })
	w.gate.mu.Unlock()
	if err != nil {
		s.answer, s.err = answer{}, err
	}
	close(s.done)
}

// resolve runs a statement, or strikes it.
func (w *world) resolve(s *statement) {
	if ended := context.Cause(s.ctx); ended != nil {
		how := w.rng.IntN(4)
		w.spared = w.spared && how == 0 // its answer is lost
		w.strike(s, ended, how)
		return
	}
	switch {
	case s.ran, w.calm, w.rng.IntN(6) > 0:
		w.strike(s, nil, 0)
		return
	case w.rng.IntN(4) == 0:
		w.note("run, answer later", s.key())
		w.run(s)
		return
	}
	w.strike(s, errCut, w.rng.IntN(5))
}

// strike answers a statement: runs it, or loses its answer, or fails it, or lets the server run it later.
func (w *world) strike(s *statement, err error, how int) {
	if err != nil && how > 0 && err == errCut { //nolint:errorlint // it is ours
		w.faults++
	}
	switch {
	case err == nil || how == 0:
		w.note("answer", s.key())
		if !s.ran {
			w.run(s)
		}
		w.answer(s, nil)
		return
	case how == 1, s.ran:
		w.note("lose the answer", s.key())
		if !s.ran {
			w.run(s)
		}
	case how == 2:
		w.note("fail", s.key())
	case how == 3:
		w.note("late", s.key())
		copied := *s
		w.late = append(w.late, &copied)
	case w.busy < 3:
		w.busy++
		w.note("busy", s.key())
		w.answer(s, errBusy)
		return
	}
	s.conn.cut = w.rng.IntN(2) == 0
	w.answer(s, err)
}

// runLate runs a statement whose caller has its error already.
func (w *world) runLate(i int) {
	s := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	w.note("run late", s.key())
	w.run(s)
}

// pass lets time pass.
func (w *world) pass() {
	n := 1
	if !w.calm {
		n = []int{1, 1, 1, 1, 1, 2, 5, 6, 15, 16, 20}[w.rng.IntN(11)]
	}
	w.sleep(n)
}

func (w *world) sleep(ticks int) {
	w.note("time", ticks)
	time.Sleep(time.Duration(ticks) * tick)
}

// freeze stops a process for a while: its statements are not answered.
func (w *world) freeze() {
	p := w.rng.IntN(len(w.lockers))
	n := 1 + w.rng.IntN(20)
	w.note("freeze", p, n)
	w.faults++
	w.frozen[p] = time.Now().Add(time.Duration(n) * tick)
}

// settle waits until nothing moves any more, and looks at what has ended.
func (w *world) settle() {
	synctest.Wait()
	for _, c := range w.callers {
		if c.finished {
			c.finished, c.busy = false, false
			w.settled++
			w.ended(c)
		}
	}
	w.overlaps()
}

// drain ends the faults, and lets all calls end.
func (w *world) drain() {
	w.calm = true
	clear(w.frozen)
	for _, s := range w.late {
		w.note("run late", s.key())
		w.run(s)
	}
	w.late = nil
	for _, c := range w.callers {
		c.left = 0
	}
	for waited, last := time.Duration(0), w.settled; w.violation == ""; {
		w.settle()
		if w.settled > last {
			waited, last = 0, w.settled
		}
		if ready := w.ready(); len(ready) > 0 {
			w.resolve(ready[0])
			continue
		}
		busy := false
		for _, c := range w.callers {
			if !c.busy && c.lease != nil {
				w.start(c)
			}
			busy = busy || c.busy
		}
		switch {
		case !busy:
			return
		case waited > patience:
			w.violatef("calls wait for %v although nobody has the lock: %s", patience, w.waitingCalls())
		}
		w.sleep(1)
		waited += tick
	}
}

func (w *world) waitingCalls() string {
	var list []string
	for _, c := range w.callers {
		if c.busy {
			list = append(list, fmt.Sprintf("%s of caller %d (process %d) on %s", c.call, c.id, c.process, c.key))
		}
	}
	return strings.Join(list, ", ")
}

// rest lets the time pass in which cleanups end, and then half a second in which nothing may happen.
func (w *world) rest() {
	sent := 0
	for n := range 8 {
		if w.violation != "" {
			return
		}
		w.settle()
		for ready := w.ready(); len(ready) > 0; ready = w.ready() {
			w.resolve(ready[0])
			w.settle()
		}
		if n == 6 {
			sent = w.gate.sent
		}
		w.sleep(20)
	}
	if w.gate.sent != sent {
		w.violatef("%d statements in half a second, long after the last call had ended", w.gate.sent-sent)
	}
	for name, r := range w.store.rows {
		if r.left(micros(time.Now())) > 0 {
			w.violatef("%s is held for %d µs, and no caller has it", name, r.left(micros(time.Now())))
		}
	}
}

// end closes everything.
func (w *world) end() {
	w.gate.mu.Lock()
	w.gate.open = true
	for _, s := range w.gate.waiting {
		if !s.ran {
			w.run(s)
		}
		close(s.done)
	}
	w.gate.waiting = nil
	w.gate.mu.Unlock()
	for _, c := range w.callers {
		if c.cancel != nil {
			c.cancel()
		}
	}
	for _, l := range w.lockers {
		if err := l.Close(context.Background()); err != nil && w.violation == "" {
			w.violatef("close: %v", err)
		}
	}
	for _, c := range w.callers {
		close(c.do)
	}
}

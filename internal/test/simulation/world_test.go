package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// tick is by how much time passes at least. Every random pause of a lease (polls, retries, backoffs) ends
	// within one, so chance does not decide what has happened when a tick is over.
	tick = 13 * time.Millisecond
	// steps bounds the part of a schedule with faults, and patience the time within which all calls must
	// have ended once there are none.
	steps    = 120
	episodes = 10 // of a schedule: they share its processes, which take longer to open than to use
	patience = 8 * time.Second
)

// scene is what the processes of a world do, and the store that they use.
type scene interface {
	server

	// open opens a process.
	open(t *testing.T, process int)
	// arm begins an episode on as many keys.
	arm(keys int)
	// next draws the next call of a caller, and returns what its goroutine does. A caller that owes a call gets that one.
	next(c *caller) func()
	// leaves reports whether a caller that waits may give up.
	leaves(c *caller) bool
	// mortal reports whether processes may be killed, and kill kills one, and opens the next.
	mortal() bool
	kill(process int)
	// more begins what must follow when all calls have ended and there are no faults. It returns false if there is nothing.
	more() bool
	// ended checks the result of a call, check what must hold after each step, and rested what must hold when all calls
	// have ended and time has passed.
	ended(c *caller)
	check()
	rested()
	// done counts what was granted or executed.
	done() int
	// close closes the processes.
	close() error
}

// server is what runs the statements of a scene.
type server interface {
	// run runs a statement at the store. It returns false if it does not know the statement.
	run(s *statement) (known bool)
	// waits reports whether a statement waits at the store for another one.
	waits(s *statement) bool
	// struck says what becomes of the connection of a statement that failed with err.
	struck(s *statement, err error)
	// allows reports whether the fault can happen to a statement: later, or refused.
	allows(s *statement, f fault) bool
	// cuts are the connections that may be cut although nothing is sent on them, and cut cuts one.
	cuts() []*conn
	cut(c *conn)
}

// world is one schedule: what its seed draws, and what happens.
type world struct {
	seed      uint64
	rng       *rand.Rand
	scene     scene
	gate      gate
	processes int
	callers   []*caller
	calm      bool        // no faults from now on
	spared    bool        // nor before in this episode: every call succeeds
	frozen    []time.Time // by process: its statements are not answered until then
	late      []*statement
	busy      int // errors of a busy database so far
	steps     int // of the part with faults
	odds      int // one statement in so many has a fault
	haste     int // how much likelier a statement is than other things
	calls     int

	violation string
	hash      uint64
	trace     []string // if traced
	traced    bool
	episodes  int
	ordinals  map[string]int // attempts, in the order in which the scheduler saw them
	faults    int
	settled   int // calls that have ended
	losses    int // statements that got an error, or no answer
	patience  time.Duration
}

// caller is one goroutine of a process.
type caller struct {
	id, process int
	do          chan func()
	left        int  // calls to come
	owes        bool // a call that must follow, such as the release of what it has

	call     call
	busy     bool        // a call runs
	finished atomic.Bool // and has ended since the last look
	key      string
	number   int // of the call
	ctx      context.Context
	cancel   context.CancelFunc
	err      error
}

type call string

func newWorld(of func(*world) scene, seed uint64) *world {
	w := &world{seed: seed, rng: rand.New(rand.NewPCG(seed, 44)), ordinals: map[string]int{}, steps: steps, patience: patience, odds: 6, haste: 1, hash: 14695981039346656037}
	w.scene = of(w)
	return w
}

// simulate runs the schedule of a seed.
func simulate(t *testing.T, of func(*world) scene, seed uint64, traced bool) *world {
	w := newWorld(of, seed)
	w.traced = traced
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
	w.scene.arm(1 + w.rng.IntN(5)/3)
	w.busy = 0
	for _, c := range w.callers {
		c.left = 1 + w.rng.IntN(3)
	}
	w.note("schedule", w.episodes)
}

// begin opens the processes and starts the callers.
func (w *world) begin(t *testing.T) {
	w.processes = 1 + w.rng.IntN(8)/3
	for p := range w.processes {
		w.open(t, p)
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

// open opens a process.
func (w *world) open(t *testing.T, p int) {
	handles[p].world, handles[p].life = w, nil
	w.scene.open(t, p)
	w.frozen = append(w.frozen, time.Time{})
}

// choice is something that may happen next.
type choice struct {
	weight int
	do     func()
}

// fire lets things happen, also faults, until all calls are made or the schedule is long enough.
func (w *world) fire() {
	for range w.steps {
		w.settle()
		if w.violation != "" || !slices.ContainsFunc(w.callers, func(c *caller) bool { return c.busy || c.left > 0 || c.owes }) {
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
		case !c.busy && (c.owes || c.left > 0):
			starts = append(starts, c)
		case c.busy && w.scene.leaves(c) && c.ctx.Err() == nil:
			cancels = append(cancels, c)
		}
	}
	ready, cuts := w.ready(), w.scene.cuts()
	options := [...]choice{
		{6 * min(len(starts), 3), func() { w.start(pick(w, starts)) }},
		{12 * w.haste * min(len(ready), 2), func() { w.resolve(pick(w, ready)) }},
		{min(len(cancels), 1), func() { w.giveUp(pick(w, cancels)) }},
		{2 * min(len(w.late), 1), func() { w.runLate(w.rng.IntN(len(w.late))) }},
		{4, w.pass},
		{1, w.freeze},
		{min(len(cuts), 1), func() { w.scene.cut(pick(w, cuts)) }},
		{0, func() { w.scene.kill(w.rng.IntN(w.processes)) }},
	}
	if w.scene.mortal() {
		options[7].weight = 1
	}
	if w.calm {
		options[5].weight, options[6].weight, options[7].weight = 0, 0, 0
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

// start begins the next call of a caller.
func (w *world) start(c *caller) {
	c.busy = true
	if !c.owes {
		c.left--
		w.calls++
		c.number = w.calls
	}
	f := w.scene.next(c)
	c.do <- func() { f(); c.finished.Store(true) }
}

// settle waits until nothing moves any more, and looks at what has ended.
func (w *world) settle() {
	synctest.Wait()
	for _, c := range w.callers {
		if c.finished.Swap(false) {
			c.busy = false
			w.settled++
			w.scene.ended(c)
		}
	}
	w.scene.check()
}

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
		w.violation = strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; ") // an error of several lines
		w.note("VIOLATION", w.violation)
	}
}

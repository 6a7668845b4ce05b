package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	rowLength     = 2 // of a lock's row, or a line's: the kind and the key
	attemptLength = 16
	hashLength    = 32
)

// statement is a statement that waits for the scheduler.
type statement struct {
	conn   *conn
	ctx    context.Context
	name   string
	text   string
	args   []any
	of     string // stable name: see key
	answer answer
	err    error
	sent   time.Time
	ran    bool // at the store: what it waits for is that its answer arrives
	done   chan struct{}
}

type callerKey struct{}

// key names a statement in the same way in every run of a schedule: the process, the caller, the statement, and
// its rows; not the ids of attempts, which are random.
func (s *statement) key() string {
	if s.of == "" {
		var rows []string
		for _, a := range s.args {
			switch b, _ := a.([]byte); {
			case len(b) == rowLength && strings.HasPrefix(s.name, "locks."):
				rows = append(rows, string(b[1:]))
			case len(b) == hashLength && strings.HasPrefix(s.name, "staged."):
				rows = append(rows, fmt.Sprintf("%x", b[:2]))
			}
		}
		s.of = fmt.Sprintf("p%d %d %s%s", s.conn.of.id, callerOf(s.ctx), strings.TrimPrefix(s.name, "locks."), sortedOnce(rows))
	}
	return s.of
}

// gate is where statements wait.
type gate struct {
	mu      sync.Mutex
	waiting []*statement
	open    bool         // statements run at once: the schedule is over
	sent    int          // statements so far
	seen    atomic.Int64 // see see

	doubts map[int]bool // callers whose COMMIT may have arrived
	closed []*conn      // with an open transaction
	leaked []*conn      // back in the pool with one
}

// see makes what the scheduler wrote before its last see visible to a process that a timer has woken.
func (g *gate) see() { g.seen.Add(1) }

// doubt notes a COMMIT that was not answered.
func (g *gate) doubt(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.doubts == nil {
		g.doubts = map[int]bool{}
	}
	g.doubts[callerOf(ctx)] = true
}

// doubted reports whether a COMMIT of the caller's call was not answered, and forget begins the next call.
func (g *gate) doubted(caller int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.doubts[caller]
}

func (g *gate) forget(caller int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.doubts, caller)
}

// released returns the connections of release, and forgets them.
func (g *gate) released() (closed, leaked []*conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	closed, leaked, g.closed, g.leaked = g.closed, g.leaked, nil, nil
	return closed, leaked
}

// release notes a connection that the process has closed, or given back, with an open transaction.
func (g *gate) release(c *conn, discard bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if discard {
		g.closed = append(g.closed, c)
	} else {
		g.leaked = append(g.leaked, c)
	}
}

// callerOf returns the number of the caller for whom a statement is sent; -1 in the background.
func callerOf(ctx context.Context) int {
	if n, known := ctx.Value(callerKey{}).(int); known {
		return n
	}
	return -1
}

// send waits until the scheduler has run a statement, or has not.
func (w *world) send(s *statement) (answer, error) {
	w.gate.mu.Lock()
	w.gate.sent++
	s.sent = time.Now()
	if w.gate.open {
		defer w.gate.mu.Unlock()
		w.run(s)
		return s.answer, s.err
	}
	s.done = make(chan struct{})
	w.gate.waiting = append(w.gate.waiting, s)
	w.gate.mu.Unlock()
	<-s.done
	return s.answer, s.err
}

// run runs a statement at the store.
func (w *world) run(s *statement) {
	known := w.scene.run(s)
	s.ran = true
	if !known {
		s.err = fmt.Errorf("%w: %s", errUnknown, s.text)
		w.violatef("unknown statement %s: %s", s.name, s.text)
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
		if !w.frozen[s.conn.of.id].After(time.Now()) && (s.ran || !w.scene.waits(s)) {
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

// sortedOnce returns sorted names, each once, with a space before each.
func sortedOnce(names []string) string {
	slices.Sort(names)
	var b strings.Builder
	for _, n := range slices.Compact(names) {
		b.WriteString(" " + n)
	}
	return b.String()
}

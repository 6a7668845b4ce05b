// Package everyfault runs a handler once for each point at which it can be hurt, and each fault there, for the
// EveryFault of each of holdfasttest's packages.
package everyfault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
)

// TB is what Run needs of holdfasttest.TB.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Handler is holdfasttest.Handler, for kits of any type.
type Handler[K any] struct {
	Setup           func(ctx context.Context, kit K) error
	Call            func(ctx context.Context, kit K, key string) error
	Invariant       func(ctx context.Context, kit K) error
	OtherKeyRefused bool
}

// answers is the frame below which a goroutine is the call's: see caller.
func (h Handler[K]) answers(ctx context.Context, kit K, key string) error {
	return h.Call(ctx, kit, key)
}

// Engine makes the databases of the runs.
type Engine[K any] interface {
	// Begin makes the database of a run, with Holdfast's tables and nothing else.
	Begin() Database[K]
}

// Database is that of one run.
type Database[K any] interface {
	// Clean is a kit into whose statements nothing is injected.
	Clean() K
	// Start makes the kit of a process, whose calls to the outside go through via(its transport). closePool closes
	// its pool, and waits for no other.
	Start(p *Process, via func(http.RoundTripper) http.RoundTripper) (kit K, closePool func())
	// TimePasses ends all leases, and the pauses of staged operations.
	TimePasses() error
	End()
}

const (
	quiet    = 30 * time.Millisecond  // after a kill: the call does not answer any more
	calm     = 300 * time.Millisecond // without a statement: the goroutines of a call that has answered are done
	patience = 2 * time.Second        // then a call that still runs waits for a lease, which ends
	pause    = 200 * time.Millisecond // the longest between two requests of a client
	askFor   = 10 * time.Second       // for a definite answer
	late     = 5 * time.Second        // for a statement that comes after the answer
	hang     = 30 * time.Second       // for one request
)

// Run is EveryFault.
func Run[K any](tb TB, engine Engine[K], h Handler[K]) (points int) {
	tb.Helper()
	e := &everyFault[K]{tb: tb, h: h, engine: engine}
	defer e.wait()
	whole := e.run(0, None)
	e.whole = whole
	for n, p := range whole.points {
		alone, _ := p.faults(h.OtherKeyRefused)
		e.each(n+1, alone)
	}
	for n, p := range whole.points { // last: a mistake that one process shows alone is named by its line
		_, others := p.faults(h.OtherKeyRefused)
		e.each(n+1, others)
	}
	e.twice()
	return len(whole.points)
}

type everyFault[K any] struct {
	tb     TB
	h      Handler[K]
	engine Engine[K]
	whole  *faultRun[K] // the one without a fault, once it is over
	calls  sync.WaitGroup
}

// wait gives the calls of dead processes time to end.
func (e *everyFault[K]) wait() {
	done := make(chan struct{})
	go func() {
		e.calls.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(late):
	}
}

func (e *everyFault[K]) must(err error) {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatalf("holdfasttest: %v", err)
	}
}

func (e *everyFault[K]) each(n int, faults []Fault) {
	e.tb.Helper()
	for _, f := range faults {
		e.run(n, f)
	}
}

// run makes a request, with fault f at its n-th point.
func (e *everyFault[K]) run(n int, f Fault) *faultRun[K] {
	e.tb.Helper()
	r := e.begin()
	defer r.database.End()
	r.strike, r.fault = n, f
	r.afterAnswer = e.whole != nil && (n > e.whole.inTime || e.whole.points[n-1].aside)
	r.ask()
	if e.h.OtherKeyRefused && !r.otherAccepted {
		if err := r.once(secondKey); err == nil {
			r.failf("the same request under another key was accepted")
		}
		r.invariant("after the same request under another key")
	}
	return r
}

// twice makes a request that has its answer again.
func (e *everyFault[K]) twice() {
	e.tb.Helper()
	r := e.begin()
	defer r.database.End()
	r.ask()
	if err := r.once(firstKey); !sameAnswer(err, e.whole.answer) {
		r.failf("a second request with the same key got the answer %s", said(err))
	}
	r.invariant("after two requests with the same key")
}

const firstKey, secondKey = "key-1", "key-2"

// faultRun is one request with one fault, on its own database.
type faultRun[K any] struct {
	*plan

	e             *everyFault[K]
	database      Database[K]
	answer        error
	otherAccepted bool // the request of the second key came in between, and was accepted
}

func (e *everyFault[K]) begin() *faultRun[K] {
	e.tb.Helper()
	r := &faultRun[K]{plan: &plan{}, e: e, database: e.engine.Begin()}
	r.overtake = r.overtaken
	e.must(e.h.Setup(context.Background(), r.database.Clean()))
	return r
}

// start starts a process of the program.
func (r *faultRun[K]) start(first bool) (*Process, K) {
	r.e.tb.Helper()
	p := newProcess(r.plan)
	k, closePool := r.database.Start(p, func(t http.RoundTripper) http.RoundTripper { return outside{t, p} })
	p.close = closePool
	p.running, p.first = true, first
	return p, k
}

// call makes one request, and waits for what its goroutines do after the answer. lost means that the
// process was killed before it had answered: then no caller got err.
func (r *faultRun[K]) call(p *Process, k K, key string) (lost bool, err error) {
	r.e.tb.Helper()
	answer := make(chan bool, 1)
	var got error
	p.called(1)
	r.e.calls.Go(func() {
		defer p.called(-1)
		got = errors.New("holdfasttest: the Call of the Handler has ended its goroutine")
		defer func() { answer <- p.answer() }()
		got = r.e.h.answers(p.ctx, k, key)
	})
	for wait := patience; ; wait *= 2 {
		select {
		case lost = <-answer:
			r.settle(p)
			return lost, got
		case <-p.ctx.Done():
			select {
			case lost = <-answer:
				return lost, got
			case <-time.After(quiet): // it may still try to reach its database for a while
				return true, nil
			}
		case <-time.After(wait): // it waits for a lease, perhaps its own of before the fault
			_ = r.database.TimePasses()
		}
		if wait > hang {
			r.failf("the call does not return")
		}
	}
}

// settle waits for what goroutines of a call do after its answer.
func (r *faultRun[K]) settle(p *Process) {
	if whole := r.e.whole; whole != nil {
		for end := time.Now().Add(late); p.first && r.afterAnswer && r.reached() < r.strike && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if !whole.goesOn() {
			return // there are none
		}
	}
	for before := -1; !p.Killed() && (before < r.reached() || p.busy()); {
		before = r.reached()
		time.Sleep(calm)
	}
}

// once makes one request to a new process.
func (r *faultRun[K]) once(key string) error {
	r.e.tb.Helper()
	p, k := r.start(false)
	defer p.kill()
	_, err := r.call(p, k, key)
	return err
}

// ask makes the request until it has a definite answer, and checks the invariant.
func (r *faultRun[K]) ask() {
	r.e.tb.Helper()
	p, k := r.start(true)
	defer func() { p.kill() }()
	lost, err := r.call(p, k, firstKey)
	p.over()
	end := time.Now().Add(askFor)
	for asked := 1; lost || !definite(err) && !r.otherAccepted; asked++ {
		if asked > 20 && time.Now().After(end) { // a slow machine may take the time for less
			r.failf("the client asks again with the same key for %v, and still gets %s", askFor, said(err))
		}
		r.e.must(r.database.TimePasses())
		if p.Killed() {
			p, k = r.start(false)
		} else {
			time.Sleep(min(pause, time.Millisecond<<asked))
		}
		lost, err = r.call(p, k, firstKey)
	}
	p.kill() // which an answer must survive
	r.answer = err
	switch whole := r.e.whole; {
	case r.otherAccepted && err == nil:
		r.failf("the same request was accepted under two keys")
	case whole != nil && !r.otherAccepted && !sameAnswer(err, whole.answer):
		r.failf("the answer is %s, and without a fault %s", said(err), said(whole.answer))
	}
	r.invariant("after the answer " + said(err))
}

// overtaken serves the request in another process, while this one stands still until its leases have ended.
func (r *faultRun[K]) overtaken(f Fault) {
	r.e.must(r.database.TimePasses())
	if f == overtakenByOtherKey {
		r.otherAccepted = r.once(secondKey) == nil
	} else {
		_ = r.once(firstKey)
	}
}

func said(answer error) string {
	if answer == nil {
		return `"done"`
	}
	return strconv.Quote(answer.Error())
}

func (r *faultRun[K]) invariant(when string) {
	r.e.tb.Helper()
	if err := r.e.h.Invariant(context.Background(), r.database.Clean()); err != nil {
		r.failf("%s: %v", when, err)
	}
}

func (r *faultRun[K]) failf(format string, args ...any) {
	r.e.tb.Helper()
	r.e.tb.Fatalf("%s: %s", r.blame(), fmt.Sprintf(format, args...))
}

// definite reports whether a client that got err does not ask again.
func definite(err error) bool {
	var no *idempotency.Rejection
	return err == nil || errors.As(err, &no) || errors.Is(err, idempotency.ErrMismatch) || errors.Is(err, idempotency.ErrExpired) ||
		errors.Is(err, idempotency.ErrSimilar)
}

func sameAnswer(a, b error) bool {
	var x, y *idempotency.Rejection
	if errors.As(a, &x) && errors.As(b, &y) {
		return x.Code == y.Code
	}
	return a == nil && b == nil
}

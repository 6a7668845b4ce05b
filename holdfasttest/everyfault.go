package holdfasttest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest/internal/kit"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
)

// Handler is a handler of the program for [EveryFault].
type Handler struct {
	// Setup makes the program's tables and rows on a new database, and resets what stands for the
	// outside world. It runs before each fault.
	Setup func(ctx context.Context, kit *Kit[*sql.Tx]) error
	// Call builds the program on the kit, as a process does when it starts, and makes one request with
	// this key. A nil error is the answer "done" to the client; after an error of an uncertain outcome the
	// client asks again. The program uses the kit's DB, Pool and Transport, and no other connection.
	Call func(ctx context.Context, kit *Kit[*sql.Tx], key string) error
	// Invariant returns what is wrong once the request has its answer: in the database, and outside.
	Invariant func(ctx context.Context, kit *Kit[*sql.Tx]) error
	// OtherKeyRefused means that the same request under another key must fail, such as a second refund
	// of an order.
	OtherKeyRefused bool
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

// EveryFault runs a handler once for each point at which it can be hurt, and each fault there. It ends the
// test at the first point after which the invariant does not hold, and names the line of the program that
// ran it. It returns the number of points.
//
// A point is a statement, a COMMIT or a call through the kit's Transport, of the program or of Holdfast. The
// faults: the process is killed before it, or after it; it is done, and its answer is lost; a timeout, in
// the database that of a lock; a deadlock; the connection is reset before it. At a COMMIT also: its answer
// is lost, and Holdfast cannot ask what became of it, so that the call gets ErrUnknown. Outside of
// transactions also: the process stands still until its leases have ended, while another one serves the same
// request, and with OtherKeyRefused that of another key.
//
// After the fault the client asks again with the same key, a new process if the old one is dead, until the
// answer is definite. It must be the answer of a run without a fault. Then comes the other key, if it must
// be refused, and then Invariant. Between two requests all leases and pauses of Holdfast end, and also while
// a call does not return for long.
//
// The databases are SQLite's, a new one for each fault, with opts.
func EveryFault(tb TB, h Handler, opts ...holdfast.Options) (points int) {
	tb.Helper()
	e := &everyFault{tb: tb, h: h, opts: opts, dir: tb.TempDir(), owner: "owner-" + kit.Random()}
	e.prepare()
	whole := e.run(0, noFault)
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

type everyFault struct {
	tb    TB
	h     Handler
	opts  []holdfast.Options
	dir   string
	owner string
	empty []byte    // a database with Holdfast's tables
	whole *faultRun // the one without a fault, once it is over
}

// prepare makes the database that each run starts from.
func (e *everyFault) prepare() {
	e.tb.Helper()
	path := filepath.Join(e.dir, "empty.db")
	pool := openFile(e.tb, path)
	err := pool.Close() // which puts everything into one file
	if err == nil {
		e.empty, err = os.ReadFile(path) //nolint:gosec // in the test's folder
	}
	e.must(err)
}

func (e *everyFault) must(err error) {
	e.tb.Helper()
	if err != nil {
		e.tb.Fatalf("holdfasttest: %v", err)
	}
}

func (e *everyFault) each(n int, faults []fault) {
	e.tb.Helper()
	for _, f := range faults {
		e.run(n, f)
	}
}

// run makes a request, with fault f at its n-th point.
func (e *everyFault) run(n int, f fault) *faultRun {
	e.tb.Helper()
	r := e.begin()
	defer r.end()
	r.strike, r.fault = n, f
	r.afterAnswer = e.whole != nil && n > e.whole.inTime
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
func (e *everyFault) twice() {
	e.tb.Helper()
	r := e.begin()
	defer r.end()
	r.ask()
	if err := r.once(firstKey); !sameAnswer(err, e.whole.answer) {
		r.failf("a second request with the same key got the answer %s", said(err))
	}
	r.invariant("after two requests with the same key")
}

const firstKey, secondKey = "key-1", "key-2"

// faultRun is one request with one fault, on its own database.
type faultRun struct {
	*plan

	e             *everyFault
	path          string
	clean         *Kit[*sql.Tx] // into whose statements nothing is injected
	answer        error
	inTime        int  // that many points came before the first answer
	otherAccepted bool // the request of the second key came in between, and was accepted
}

func (e *everyFault) begin() *faultRun {
	e.tb.Helper()
	path := filepath.Join(e.dir, kit.Random()+".db")
	e.must(os.WriteFile(path, e.empty, 0o600))
	connector, err := connect(path, time.Second)
	e.must(err)
	r := &faultRun{plan: &plan{}, e: e, path: path}
	r.clean = r.kit(sql.OpenDB(connector))
	r.overtake = r.overtaken
	e.must(e.h.Setup(context.Background(), r.clean))
	return r
}

func (r *faultRun) kit(pool *sql.DB) *Kit[*sql.Tx] {
	r.e.tb.Helper()
	k := OnSQL(r.e.tb, pool, r.e.opts...)
	if k.Owner != "" {
		k.Owner = r.e.owner
	}
	return k
}

func (r *faultRun) end() {
	_ = r.clean.Pool.Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(r.path + suffix)
	}
}

// start starts a process of the program.
func (r *faultRun) start(first bool) (*process, *Kit[*sql.Tx]) {
	r.e.tb.Helper()
	connector, err := connect(r.path, 20*time.Millisecond)
	r.e.must(err)
	p := &process{plan: r.plan, answered: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.pool = sql.OpenDB(faultConnector{connector, p})
	k := r.kit(p.pool)
	k.Transport = outside{k.Transport, p}
	p.running, p.first = true, first
	return p, k
}

// call makes one request, and waits for what its goroutines do after the answer. lost means that the
// process was killed before it had answered: then err reached nobody.
func (r *faultRun) call(p *process, k *Kit[*sql.Tx], key string) (lost bool, err error) {
	r.e.tb.Helper()
	answer := make(chan bool, 1)
	var got error
	go func() {
		got = errors.New("holdfasttest: the Call of the Handler has ended its goroutine")
		defer func() { answer <- p.answer() }()
		got = r.e.h.Call(p.ctx, k, key)
	}()
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
			_ = r.timePasses()
		}
		if wait > hang {
			r.failf("the call does not return")
		}
	}
}

// settle waits for what goroutines of a call do after its answer.
func (r *faultRun) settle(p *process) {
	if p.first {
		r.inTime = r.reached()
	}
	if whole := r.e.whole; whole != nil {
		for end := time.Now().Add(late); p.first && r.afterAnswer && r.reached() < r.strike && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if whole.inTime == len(whole.points) {
			return // there are none
		}
	}
	for before := -1; !p.killed() && (before < r.reached() || p.pool.Stats().InUse > 0); {
		before = r.reached()
		time.Sleep(calm)
	}
}

// once makes one request to a new process.
func (r *faultRun) once(key string) error {
	r.e.tb.Helper()
	p, k := r.start(false)
	defer p.kill()
	_, err := r.call(p, k, key)
	return err
}

// ask makes the request until it has a definite answer, and checks the invariant.
func (r *faultRun) ask() {
	r.e.tb.Helper()
	p, k := r.start(true)
	defer func() { p.kill() }()
	lost, err := r.call(p, k, firstKey)
	p.over()
	end := time.Now().Add(askFor)
	for asked := 1; lost || !definite(err) && !r.otherAccepted; asked++ {
		if time.Now().After(end) {
			r.failf("the client asks again with the same key for %v, and still gets %s", askFor, said(err))
		}
		r.e.must(r.timePasses())
		if p.killed() {
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
func (r *faultRun) overtaken(f fault) {
	r.e.must(r.timePasses())
	if f == overtakenByOtherKey {
		r.otherAccepted = r.once(secondKey) == nil
	} else {
		_ = r.once(firstKey)
	}
}

// timePasses ends all leases, and the pauses of staged operations.
func (r *faultRun) timePasses() error {
	a := access.Of(r.clean.DB)
	_, err := r.clean.Pool.ExecContext(context.Background(), `UPDATE `+a.Table("staged")+` SET due_at = 0 WHERE accepted = 0;
		UPDATE `+a.Table("locks")+` SET expires_at = 0 WHERE attempt IS NOT NULL;
		UPDATE `+a.Table("tickets")+` SET expires_at = 0`)
	return err
}

func said(answer error) string {
	if answer == nil {
		return `"done"`
	}
	return strconv.Quote(answer.Error())
}

func (r *faultRun) invariant(when string) {
	r.e.tb.Helper()
	if err := r.e.h.Invariant(context.Background(), r.clean); err != nil {
		r.failf("%s: %v", when, err)
	}
}

func (r *faultRun) failf(format string, args ...any) {
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

package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

const (
	workerLease = 200 * time.Millisecond
	stagedWait  = 500 * time.Millisecond
	maxRounds   = 600 // of a completer, until all operations have ended
)

const (
	run       call = "do"
	start     call = "start"
	cancel    call = "cancel"
	complete  call = "complete"
	completer call = "run completer"
)

// stagedScene is the scene of staged operations: processes with a Runner each, which are killed and start again, and one provider.
type stagedScene struct {
	*database

	t        *testing.T
	lives    []*life
	runners  []*runner
	workflow workflow
	attempts int                 // Workflow.MaxAttempts
	undo     bool                // there is a Workflow.Undo
	timeout  time.Duration       // ExternalCall.Timeout
	mode     doubt               // what becomes of a call in doubt
	honours  bool                // the provider honours keys
	provider map[string]*account // by operation
	clean    bool                // no faults in this episode
	keys     []string
	made     map[int]*stagedCall
	running  map[*caller]*stagedCall
	executed map[string]*stagedCall // who says that it ended the operation
	finals   map[string]record      // operations that have ended
	points   map[string]record      // steps that have
	kinds    int                    // of calls that are made
	rounds   int                    // of the completer since the faults ended
	commits  int
	ends     int // operations, so far
	payments int
}

type (
	runner   = staged.Runner[request, receipt, *tx]
	workflow = staged.Workflow[request, receipt, *tx]
)

// request is the request of an operation. Another one with its key is a mismatch.
type request struct {
	Key     string
	Refuse  bool // before anything is paid
	Another bool
}

// receipt is what an operation has: the values of its steps.
type receipt struct{ Book, Pay, Close int }

// doubt is what becomes of a call whose outcome is not known.
type doubt int

const (
	parks doubt = iota
	takesOver
	reconciles
)

// stagedCall is one call.
type stagedCall struct {
	call    call
	number  int
	request request
	op      idempotency.Op
	reason  string
	how     hindrance
	pause   time.Duration // of the function of a step, before and after its effect
	late    time.Duration // before the request to the provider
	runs    atomic.Int64  // of functions
	life    *life
	process int
	wait    bool // for what StartTx began

	began    time.Time
	before   record // when it began
	value    receipt
	outcome  idempotency.Outcome
	fresh    bool // StartTx: it began the operation
	undone   bool // likewise: its transaction was surely not committed
	found    idempotency.Found[receipt]
	done     staged.Completed
	err      error
	panicked any
}

// hindrance is what a worker does wrong.
type hindrance int

const (
	none      hindrance = iota
	bookFails           // the function of a local step
	runFails            // after the payment
	runPanics           // likewise
	hindrances
)

func newStagedScene(w *world) scene {
	return &stagedScene{
		database: &database{world: w, records: newRecords()}, made: map[int]*stagedCall{}, running: map[*caller]*stagedCall{}, lives: make([]*life, len(handles)), runners: make([]*runner, len(handles)),
	}
}

// open starts a process.
func (w *stagedScene) open(t *testing.T, p int) {
	if w.t == nil { // the program is the same in each process
		w.t = t
		w.mode = doubt(w.rng.IntN(3))
		w.honours = w.mode == takesOver || w.mode == reconciles && w.rng.IntN(2) == 0
		w.undo = w.rng.IntN(2) == 0
		w.attempts = []int{3, 1000, 1000}[w.rng.IntN(3)]
		w.timeout = []time.Duration{0, 0, 3 * workerLease}[w.rng.IntN(3)]
		w.workflow = workflow{Name: "refund", Run: w.refund, Lease: workerLease, Backoff: time.Millisecond, MaxBackoff: 8 * time.Millisecond, MaxAttempts: w.attempts}
		if w.undo {
			w.workflow.Undo = func(ctx context.Context, t *tx, q request, _ staged.Operation) error { return unbook(ctx, t, q.Key) }
		}
	}
	s, err := idempotency.New(t.Context(), handles[p].db, idempotency.Options{Wait: stagedWait, LockTimeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	if w.runners[p], err = staged.New(s, w.workflow); err != nil {
		t.Fatal(err)
	}
	w.lives[p] = &life{}
}

// arm begins with new keys.
func (w *stagedScene) arm(keys int) {
	w.records.committed, w.keys = newRecords().committed, nil
	if w.records.logs {
		w.records.log = append(w.records.log, logged{name: "forget all"})
	}
	w.clean, w.rounds = w.calm, 0
	w.kinds = []int{10, 10, 12}[w.rng.IntN(3)]                                                   // no cancels, or some
	w.steps, w.odds, w.haste = 300, []int{8, 25, 80}[w.rng.IntN(3)], []int{3, 10}[w.rng.IntN(2)] // an operation sends thirty statements
	w.executed, w.provider = map[string]*stagedCall{}, map[string]*account{}
	w.finals, w.points = map[string]record{}, map[string]record{}
	for n := range keys {
		key := fmt.Sprint("k", w.episodes, n)
		w.keys = append(w.keys, key)
		w.provider[key] = &account{}
	}
}

func (*stagedScene) leaves(*caller) bool { return true }
func (*stagedScene) mortal() bool        { return true }

// kill ends a process: what it has sent arrives, or not, and what it does then reaches nothing.
func (w *stagedScene) kill(p int) {
	w.die(p, w.lives[p], func(s *statement) bool { return s.ctx.Value(lifeKey{}) == any(w.lives[p]) })
	w.open(w.t, p)
	w.frozen[p] = time.Now().Add(time.Duration(w.rng.IntN(20)) * tick)
}

// next draws a call.
func (w *stagedScene) next(c *caller) func() {
	f := &stagedCall{number: c.number, life: w.lives[c.process], process: c.process, began: time.Now()}
	f.call = []call{run, run, run, run, start, start, complete, complete, completer, lookup, cancel, cancel}[w.rng.IntN(w.kinds)]
	f.request = request{Key: pick(w.world, w.keys)}
	f.request.Refuse = f.request.Key[len(f.request.Key)-1] == '1' && w.episodes%3 == 0
	f.request.Another = w.rng.IntN(10) == 0
	f.op, f.reason, f.wait = idempotency.Op{Key: f.request.Key}, fmt.Sprint("call ", f.number), w.rng.IntN(2) == 0
	switch w.rng.IntN(6) {
	case 0:
		f.op.Wait = holdfast.NoWait
	case 1:
		f.op.Wait = time.Duration(1+w.rng.IntN(20)) * tick
	}
	if f.pause = time.Duration(w.rng.IntN(2)) * tick; !w.calm {
		f.pause = []time.Duration{0, 0, 0, tick, 3 * tick, 9 * tick}[w.rng.IntN(6)]
		f.late = []time.Duration{0, 0, tick, 5 * tick, 12 * tick}[w.rng.IntN(5)]
		f.how = []hindrance{none, none, none, none, bookFails, runFails, runPanics}[w.rng.IntN(7)]
	}
	after := time.Duration(10+w.rng.IntN(30)) * tick
	if c.owes {
		c.owes, f.call, f.how, f.pause, f.late = false, complete, none, 0, 0
	}
	c.call, c.key = f.call, f.request.Key
	f.before = w.opOf(c.key)
	w.made[f.number], w.running[c] = f, f
	w.gate.forget(c.id)
	ctx := context.WithValue(context.WithValue(context.WithValue(context.Background(), callerKey{}, c.id), lifeKey{}, f.life), callKey{}, f)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() bool { return true }
	if f.call == completer {
		stop = time.AfterFunc(after, func() { cancel(gaveUpError(f.number)) }).Stop
	}
	c.ctx, c.cancel = ctx, func() { stop(); cancel(gaveUpError(f.number)) }
	w.note(string(f.call), c.id, c.key, f.number, int(f.how), int(f.pause/tick), int(f.op.Wait/tick))
	r, d := w.runners[c.process], handles[c.process].db
	return func() {
		defer func() { f.panicked = recover() }()
		f.make(ctx, r, d)
	}
}

type callKey struct{}

// errNotCommitted ends a transaction of StartTx.
var errNotCommitted = errors.New("the caller's transaction is rolled back")

// make makes a call.
func (f *stagedCall) make(ctx context.Context, r *runner, d *db) {
	switch f.call {
	case run:
		var res idempotency.Result[receipt]
		res, f.err = r.Do(ctx, f.op, f.request)
		f.value, f.outcome = res.Value, res.Outcome
	case start:
		f.start(ctx, r, d)
	case cancel:
		f.outcome, f.err = r.Cancel(ctx, f.op, f.reason)
	case complete:
		f.done, f.err = r.Complete(ctx)
	case completer:
		f.err = r.RunCompleter(ctx, staged.RunOptions{Every: 3 * tick, OnPass: func(staged.Completed, error) {}})
	case lookup:
		f.op.Wait, f.op.Request = max(f.op.Wait, 0), f.request
		f.found, f.err = r.Lookup(ctx, f.op)
	}
}

// start begins an operation in a transaction that writes a row of the caller's, and may wait for its end.
func (f *stagedCall) start(ctx context.Context, r *runner, d *db) {
	var started *staged.Started[receipt]
	f.err = d.InTx(ctx, func(ctx context.Context, t *tx) (err error) {
		if started, err = r.StartTx(ctx, t, f.op, f.request); err != nil {
			return err
		}
		if started.New {
			err = book(ctx, t, f.request.Key+"/start", f.value.Book+f.number)
		}
		if err == nil && f.how == runFails {
			err = errNotCommitted
		}
		return err
	}, holdfast.TxOptions{LockTimeout: lockTimeout})
	if f.undone = f.err != nil && !errors.Is(f.err, holdfast.ErrUnknown); f.err != nil {
		return
	}
	if f.fresh = started.New; !f.wait {
		return
	}
	bounded, cancel := context.WithTimeoutCause(ctx, stagedWait, gaveUpError(f.number))
	defer cancel()
	res, err := started.Wait(bounded)
	f.value, f.outcome, f.err = res.Value, res.Outcome, err
}

func (w *stagedScene) run(s *statement) (known bool) {
	if s.conn.provider {
		return w.serve(s)
	}
	if s.name == "effect" && s.conn.txn != nil && s.conn.txn.begun {
		w.anew(s)
	}
	return w.perform(s)
}

func (w *stagedScene) struck(s *statement, err error) {
	if !s.conn.provider {
		w.database.struck(s, err)
	}
}

// allows: a request may reach the provider when its caller has its error already.
func (w *stagedScene) allows(s *statement, f fault) bool {
	if s.conn.provider {
		return f == later
	}
	return w.database.allows(s, f)
}

// more lets a completer run until all operations have ended.
func (w *stagedScene) more() bool {
	open := ""
	for _, key := range w.keys {
		if row := w.opOf(key); row != nil && row[opState] == claimedState {
			open = key
		}
	}
	if open == "" {
		return false
	}
	if w.rounds++; w.rounds > maxRounds {
		w.violatef("%s has not ended after %d passes of a completer without faults", open, maxRounds)
		return false
	}
	w.callers[w.rounds%len(w.callers)].owes = true
	return true
}

func (w *stagedScene) done() int  { return w.ends }
func (*stagedScene) close() error { return nil }

package simulation

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/core"
)

const (
	lockTimeout = 400 * time.Millisecond
	storeWait   = 2 * time.Second
	runsOfCall  = 1000 // a value is the number of its call, times this, plus the number of the function's run
)

const (
	do     call = "do"
	doTx   call = "do in tx"
	void   call = "void"
	lookup call = "lookup"
)

// flights is the scene of idempotent operations: processes with a Store each.
type flights struct {
	*database

	stores  []*idempotency.Store[*tx]
	clean   bool // no faults in this episode
	keys    []string
	made    map[int]*flight // by number, in this episode
	running map[*caller]*flight
	commits int // at the last check
	effects int // so far
}

// flight is one call.
type flight struct {
	call   call
	number int
	key    string
	op     idempotency.Op
	how    behaviour
	pause  time.Duration // of the function, before and after its effect
	runs   int           // of the function

	began    time.Time
	before   bool      // there was a record when it began
	crowd    time.Time // when another call ran at last, or had the write lock
	gone     bool      // it returned an error that says that it has no effect
	value    int
	outcome  idempotency.Outcome
	err      error
	panicked any
	found    idempotency.Found[int]
}

// behaviour is what a function does after its effect.
type behaviour int

const (
	succeeds behaviour = iota
	fails
	rejects
	panics
	impatient // it ends its statement after a tick, and then sends it again
)

func flightScene(w *world) scene {
	return &flights{database: &database{world: w, records: newRecords()}, running: map[*caller]*flight{}}
}

func (w *flights) open(t *testing.T, p int) {
	s, err := idempotency.New(t.Context(), handles[p].db, idempotency.Options{Wait: storeWait, LockTimeout: lockTimeout})
	if err != nil {
		t.Fatal(err)
	}
	w.stores = append(w.stores, s)
	if w.rng.IntN(3) > 0 {
		return
	}
	w.gate.open = true // and some know that keys are new
	for n := range 10 {
		_, err := idempotency.Do(t.Context(), s, idempotency.Op{Name: "pay", Key: fmt.Sprint("warm", p, n), NoFingerprint: true}, func(context.Context, *tx) (int, error) { return 0, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	w.gate.open = false
}

// arm begins with new keys. What was done under the old ones is not read again.
func (w *flights) arm(keys int) {
	w.clean, w.made = w.calm, map[int]*flight{}
	w.records.committed, w.keys = newRecords().committed, nil
	for n := range keys {
		w.keys = append(w.keys, fmt.Sprint("k", w.episodes, n))
	}
}

func (*flights) leaves(*caller) bool { return true }

// gaveUpError is the cause of the end of a call's context, and funcError the error of its function.
type (
	gaveUpError int
	funcError   int
)

func (e gaveUpError) Error() string { return fmt.Sprintf("call %d gave up", int(e)) }
func (e funcError) Error() string   { return fmt.Sprintf("the function of call %d", int(e)) }

// next draws a call.
func (w *flights) next(c *caller) func() {
	f := &flight{call: []call{do, do, do, doTx, void, lookup}[w.rng.IntN(6)], number: c.number, key: pick(w.world, w.keys), began: time.Now()}
	c.call, c.key = f.call, f.key
	f.op = idempotency.Op{Name: "pay", Key: f.key, NoFingerprint: true}
	switch w.rng.IntN(6) {
	case 0:
		f.op.Wait = holdfast.NoWait
	case 1:
		f.op.Wait = time.Duration(1+w.rng.IntN(20)) * tick
	}
	if f.call != void && w.rng.IntN(3) == 0 {
		f.op.NoFingerprint, f.op.Fingerprint = false, []byte{'x', byte(w.rng.IntN(2))}
	}
	if f.how = []behaviour{succeeds, succeeds, succeeds, fails, rejects, panics, impatient}[w.rng.IntN(7)]; f.how == impatient && w.calm {
		f.how = succeeds
	}
	if w.rng.IntN(3) == 0 {
		f.pause = time.Duration(1+w.rng.IntN(10)) * tick
	}
	f.before = w.recordOf(f.key) != nil
	w.made[f.number], w.running[c] = f, f
	w.gate.forget(c.id)
	w.watch() // it may end at once
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), callerKey{}, c.id))
	c.ctx, c.cancel = ctx, func() { cancel(gaveUpError(f.number)) }
	w.note(string(f.call), c.id, f.key, f.number, int(f.how), int(f.op.Wait/tick))
	s := w.stores[c.process]
	return func() {
		defer func() { f.panicked = recover() }()
		w.make(ctx, s, handles[c.process].db, f)
	}
}

// make makes a call.
func (w *flights) make(ctx context.Context, s *idempotency.Store[*tx], d *db, f *flight) {
	switch f.call {
	case do:
		res, err := idempotency.Do(ctx, s, f.op, f.function)
		f.value, f.outcome, f.err = res.Value, res.Outcome, err
	case doTx:
		var rejected error
		err := d.InTx(ctx, func(ctx context.Context, t *tx) error {
			res, err := idempotency.DoTx(ctx, s, t, f.op, f.function)
			f.value, f.outcome, rejected = res.Value, res.Outcome, nil
			if rej := (*idempotency.Rejection)(nil); errors.As(err, &rej) {
				rejected, err = err, nil // it is stored
			}
			return err
		}, holdfast.TxOptions{LockTimeout: lockTimeout})
		if f.err = err; err == nil {
			f.err = rejected
		}
	case void:
		f.outcome, f.err = s.Void(ctx, f.op, fmt.Sprint(f.number*runsOfCall))
	case lookup:
		f.found, f.err = idempotency.Lookup[int](ctx, s, f.op)
	}
}

// function is what an operation does.
func (f *flight) function(ctx context.Context, t *tx) (int, error) {
	f.runs++
	value := f.number*runsOfCall + f.runs
	time.Sleep(f.pause)
	if err := f.effect(ctx, t, value); err != nil {
		return 0, err
	}
	time.Sleep(f.pause)
	switch f.how {
	case fails:
		return 0, funcError(f.number)
	case rejects:
		return 0, idempotency.Reject("no", fmt.Sprint(value))
	case panics:
		panic(funcError(f.number))
	default:
		return value, nil
	}
}

// effectText is a statement of the program's. A second run of it changes nothing.
const effectText = `INSERT INTO effects (k, v) VALUES (?, ?) ON CONFLICT (k, v) DO NOTHING`

func (f *flight) effect(ctx context.Context, t *tx, value int) error {
	effect := core.Stmt{Name: "effect", Text: effectText}
	if f.how == impatient {
		short, cancel := context.WithTimeout(ctx, tick)
		defer cancel()
		if _, err := effect.Exec(short, t, f.key, int64(value)); err == nil || short.Err() == nil {
			return err
		}
	}
	_, err := effect.Exec(ctx, t, f.key, int64(value))
	return err
}

func (w *flights) run(s *statement) (known bool) {
	if s.name == "effect" && s.conn.txn != nil && s.conn.txn.begun {
		w.fresh(s)
	}
	return w.perform(s)
}

func (*flights) mortal() bool { return false }
func (*flights) kill(int)     {}
func (*flights) more() bool   { return false }
func (w *flights) done() int  { return w.effects }
func (*flights) close() error { return nil }

package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	*world

	records *records
	stores  []*idempotency.Store[*tx]
	clean   bool // no faults in this episode
	keys    []string
	made    map[int]*flight // by number, in this episode
	running map[*caller]*flight
	writing *conn // of the last write
	commits int   // at the last check
	effects int   // so far
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
	return &flights{world: w, records: newRecords(), running: map[*caller]*flight{}}
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
		w.perform(ctx, s, handles[c.process].db, f)
	}
}

// perform makes a call.
func (w *flights) perform(ctx context.Context, s *idempotency.Store[*tx], d *db, f *flight) {
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
	s.answer, known, s.err = w.records.run(&s.conn.session, s.name, s.text, s.args, micros(time.Now()))
	if s.conn.txn != nil && s.conn.txn == w.records.writer {
		w.writing = s.conn
	}
	return known
}

// waits: SQLite has one writer, and a busy timeout.
func (w *flights) waits(s *statement) bool {
	return w.records.busy(&s.conn.session, s.name) && s.ctx.Err() == nil && time.Since(s.sent) < s.conn.timeout
}

// allows: only a COMMIT may arrive when its connection is lost. What else a transaction had on its way is rolled back, and SQLite
// does not run a write whose connection is closed. Only what takes a lock finds the database busy.
func (*flights) allows(s *statement, f fault) bool {
	if f == refused {
		return s.name != "rollback" && (writes(s.name) || s.conn.txn == nil) || s.name == "commit"
	}
	return s.conn.txn == nil && !writes(s.name) || s.name == "commit"
}

// struck: a transaction does not go on after an error of the connection. The server ends it now or later. SQLite may roll
// back a transaction whose statement is interrupted.
func (w *flights) struck(s *statement, err error) {
	switch {
	case err == errCut && s.name == "commit": //nolint:errorlint // it is ours
		w.gate.doubt(s.ctx)
		s.conn.cut = true
		if s.conn.txn != nil && !w.coming(s) {
			w.abandon(s.conn)
		}
	case s.conn.txn == nil:
		s.conn.cut = w.rng.IntN(2) == 0
	case err == errCut: //nolint:errorlint // it is ours
		s.conn.cut = true
		w.abandon(s.conn)
	case w.rng.IntN(2) == 0:
		w.note("interrupt", s.key())
		_ = w.records.rollback(&s.conn.session)
	}
}

// coming reports whether a COMMIT runs later.
func (w *flights) coming(s *statement) bool {
	return slices.ContainsFunc(w.late, func(l *statement) bool { return l.conn == s.conn })
}

// abandon ends the transaction of a lost connection, now or later.
func (w *flights) abandon(c *conn) {
	if w.rng.IntN(2) == 0 {
		_ = w.records.rollback(&c.session)
		return
	}
	w.late = append(w.late, &statement{conn: c, ctx: context.Background(), name: "rollback", text: "rollback"})
}

// cuts are the connections of open transactions on which nothing is sent.
func (w *flights) cuts() (list []*conn) {
	t := w.records.writer
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if c := w.writing; t != nil && c != nil && c.txn == t && !c.cut && !slices.ContainsFunc(w.gate.waiting, func(s *statement) bool { return s.conn == c }) {
		list = append(list, c)
	}
	return list
}

func (w *flights) cut(c *conn) {
	w.note("cut", c.of.id)
	w.faults++
	c.cut = true
	w.abandon(c)
}

func (w *flights) done() int  { return w.effects }
func (*flights) close() error { return nil }

package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// opOf returns the committed row of an operation; nil for none.
func (w *stagedScene) opOf(key string) record {
	return rowOf(w.records.committed.ops, opKey, key)
}

// final reports whether an operation has ended.
func (r record) final() bool {
	return r != nil && (r[opState] == succeededState || r[opState] == rejectedState)
}

// decode reads a stored value, which follows the name of its form.
func decode(stored any, to any) {
	_, value, _ := bytes.Cut(blob(stored), []byte{0})
	_ = json.Unmarshal(value, to)
}

// rejection returns why an operation was rejected; nil if it was not.
func (r record) rejection() *idempotency.Rejection {
	if r == nil || r[opState] != rejectedState {
		return nil
	}
	rej := new(idempotency.Rejection)
	decode(r[opResult], rej)
	return rej
}

func (r record) voided() bool {
	rej := r.rejection()
	return rej != nil && rej.Code == idempotency.CodeVoided
}

// anew checks that the function of a local step runs behind its claim, and not again when it is stored.
func (w *stagedScene) anew(s *statement) {
	key, step, _ := strings.Cut(as[string](s.args[0]), "/")
	if step == "start" { // the caller's transaction
		return
	}
	for _, row := range s.conn.txn.ops {
		if id := stepID(row[1], step); string(blob(row[opKey])) == key && (s.conn.txn.steps[id] == nil || s.conn.txn.steps[id][stepState] != begunStep || w.records.committed.steps[id] != nil) {
			w.violatef("step %s of %s runs, and it was not claimed, or stored before", step, key)
		}
	}
}

func (w *stagedScene) check() {
	w.swept()
	if w.commits == w.records.commits {
		return
	}
	w.commits = w.records.commits
	for _, key := range w.keys {
		row := w.opOf(key)
		w.rowsOf(key, row)
		if row != nil {
			w.pointsOf(key, row)
			w.finalOf(key, row)
		}
	}
}

// rowsOf checks what the program has written.
func (w *stagedScene) rowsOf(key string, row record) {
	effects, paid := w.records.committed.effects, w.provider[key].paid
	for _, step := range []string{"/start", "/book", "/close"} {
		switch n := len(effects[key+step]); {
		case n > 1:
			w.violatef("%s has %d rows of %s", key, n, step)
		case n == 1 && row == nil:
			w.violatef("%s has a row of %s, and was not begun", key, step)
		}
	}
	for _, n := range effects[key+"/start"] {
		if f := w.made[int(n)]; f.undone {
			w.violatef("call %d (%s) has committed, and said %v", f.number, f.call, f.err)
		}
	}
	switch {
	case row != nil && as[int64](row[opStarted]) > int64(w.attempts):
		w.violatef("%s was begun %v times, of %d", key, row[opStarted], w.attempts)
	case row == nil && len(paid) > 0:
		w.violatef("%s was paid, and not begun", key)
	case row != nil && row[opState] == parkedState && w.mode != parks && w.attempts > 100:
		w.violatef("%s is parked: %v", key, row[opReason])
	}
}

// pointsOf checks the steps: each that has ended says what was done, and does not change.
func (w *stagedScene) pointsOf(key string, row record) {
	c, account := w.records.committed, w.provider[key]
	for _, name := range []string{"book", "pay", "take back", "close"} {
		id := stepID(row[1], name)
		step, was := c.steps[id], w.points[id]
		switch {
		case was != nil && (step == nil || step[stepState] != was[stepState] || !reflect.DeepEqual(step[stepResult], was[stepResult])):
			w.violatef("step %s of %s has ended as %v, and is %v", name, key, was, step)
		case step == nil || step[stepState] != doneStep && step[stepState] != refusedStep:
			continue
		}
		w.points[id] = step
		value := 0
		decode(step[stepResult], &value)
		gone := c.steps[stepID(row[1], "take back")] != nil || row.voided()
		switch {
		case name == "pay" && step[stepState] == refusedStep:
			if !account.refused {
				w.violatef("%s has a refusal, and the provider did not refuse", key)
			}
		case name == "pay":
			if !slices.Equal(account.paid, []int{value}) {
				w.violatef("%s says paid %d, and the provider %v", key, value, account.paid)
			}
		case name != "take back" && !gone:
			if effects := c.effects[key+"/"+name]; !slices.Equal(effects, []int64{int64(value)}) {
				w.violatef("step %s of %s has the rows %v, and the result %d", name, key, effects, value)
			}
		}
	}
}

// finalOf checks the end of an operation, of which there is one.
func (w *stagedScene) finalOf(key string, row record) {
	was := w.finals[key]
	switch {
	case was != nil && (row[opState] != was[opState] || !reflect.DeepEqual(row[opResult], was[opResult])):
		w.violatef("%s has ended as %v %s, and is %v %s", key, was[opState], was[opResult], row[opState], row[opResult])
		return
	case was != nil || !row.final():
		return
	}
	w.finals[key] = row
	w.ends++
	effects, account := w.records.committed.effects, w.provider[key]
	if rej := row.rejection(); rej != nil {
		switch {
		case len(account.paid) > 0:
			w.violatef("%s was paid, and is rejected: %v", key, rej)
		case len(effects[key+"/book"])+len(effects[key+"/close"]) > 0:
			w.violatef("%s is rejected: %v, and what was booked is there", key, rej)
		case rej.Code == "refused" && !account.refused:
			w.violatef("%s says refused, and the provider did not refuse", key)
		}
		return
	}
	for _, step := range []string{"book", "pay", "close"} {
		if at := w.records.committed.steps[stepID(row[1], step)]; at == nil || at[stepState] != doneStep {
			w.violatef("%s has succeeded, and its step %s is %v", key, step, at)
		}
	}
	var value receipt
	decode(row[opResult], &value)
	if !slices.Equal(account.paid, []int{value.Pay}) || !slices.Equal(effects[key+"/book"], []int64{int64(value.Book)}) || !slices.Equal(effects[key+"/close"], []int64{int64(value.Close)}) {
		w.violatef("%s says %+v, was paid %v and has the rows %v and %v", key, value, account.paid, effects[key+"/book"], effects[key+"/close"])
	}
}

// ended checks the answer of a call.
func (w *stagedScene) ended(c *caller) {
	f := w.running[c]
	defer c.cancel()
	if f.life.over.Load() {
		w.note("dead", c.id)
		return
	}
	w.note("ended", c.id, fmt.Sprint(f.value, f.outcome, f.fresh, f.err, f.panicked, f.found.State))
	row := w.opOf(c.key)
	switch {
	case f.panicked != nil && (f.panicked != any(funcError(f.number)) || f.how != runPanics):
		w.violatef("call %d: panic: %v", f.number, f.panicked)
	case f.panicked != nil:
	case f.call == complete, f.call == completer:
		w.completed(c, f)
	case f.call == lookup:
		w.lookedUp(c, f, row)
	case f.err == nil && row == nil:
		w.violatef("call %d (%s) succeeded, and %s was not begun", f.number, f.call, f.request.Key)
	case f.err == nil && f.call == start && !f.wait:
		w.begunBy(f, row)
	case f.err == nil, errors.As(f.err, new(*idempotency.Rejection)):
		w.says(f, row)
	default:
		w.erred(c, f, row)
	}
}

// begunBy checks what StartTx says.
func (w *stagedScene) begunBy(f *stagedCall, row record) {
	var q request
	decode(row[opRequest], &q)
	if rows := w.records.committed.effects[f.request.Key+"/start"]; f.fresh != slices.Equal(rows, []int64{int64(f.number)}) {
		w.violatef("call %d says that it began %s: %v, and the row of its transaction is of %v", f.number, f.request.Key, f.fresh, rows)
	}
	if row[opRequest] != nil && q.Another != f.request.Another {
		w.violatef("call %d began %s with another request", f.number, f.request.Key)
	}
}

// says checks an answer that says what became of the operation.
func (w *stagedScene) says(f *stagedCall, row record) {
	var rej *idempotency.Rejection
	errors.As(f.err, &rej)
	stored := row.rejection()
	var value receipt
	if row != nil && row[opState] == succeededState {
		decode(row[opResult], &value)
	}
	var q request
	if row != nil {
		decode(row[opRequest], &q)
	}
	switch {
	case !row.final():
		w.violatef("call %d (%s) says %v, %v, and %s has not ended", f.number, f.call, f.value, f.err, f.request.Key)
	case f.call == cancel:
		if !row.voided() || f.err != nil || f.outcome == idempotency.Executed && stored.Message != f.reason {
			w.violatef("call %d says cancelled, %v, and the record of %s %v", f.number, f.err, f.request.Key, stored)
		}
	case (rej == nil) != (stored == nil) || rej != nil && (rej.Code != stored.Code || rej.Message != stored.Message):
		w.violatef("call %d (%s) says %v, and the record of %s %v", f.number, f.call, rej, f.request.Key, stored)
	case f.value != value:
		w.violatef("call %d (%s) says %v, and the record of %s %v", f.number, f.call, f.value, f.request.Key, value)
	case row[opRequest] != nil && row[opPrint] != nil && q.Another != f.request.Another:
		w.violatef("call %d (%s) got the answer of another request", f.number, f.call)
	}
	if f.outcome != idempotency.Executed {
		return
	}
	if other := w.executed[f.request.Key]; other != nil {
		w.violatef("calls %d and %d say that they ended %s", other.number, f.number, f.request.Key)
	}
	w.executed[f.request.Key] = f
}

// erred checks an error.
func (w *stagedScene) erred(c *caller, f *stagedCall, row record) {
	var inFunc funcError
	var left gaveUpError
	var parked *staged.ParkedError
	var late *idempotency.TooLateError
	waited := time.Since(f.began)
	unknown := errors.Is(f.err, holdfast.ErrUnknown) && !errors.As(f.err, new(*staged.StepError)) && !errors.As(f.err, &parked)
	var q request
	if row != nil {
		decode(row[opRequest], &q)
	}
	switch {
	case w.never(f.err), errors.As(f.err, &inFunc) && int(inFunc) != f.number, errors.As(f.err, &left) && int(left) != f.number:
		w.violatef("call %d (%s): %v", f.number, f.call, f.err)
	case errors.As(f.err, &parked):
		if row == nil || row[opState] != parkedState && !row.voided() {
			w.violatef("call %d (%s) says parked, and %s is %v", f.number, f.call, f.request.Key, row)
		}
	case errors.As(f.err, &late):
		w.tooLate(f, row, late)
	case errors.Is(f.err, idempotency.ErrMismatch):
		if row == nil || row[opRequest] != nil && q.Another == f.request.Another {
			w.violatef("call %d (%s) is a mismatch with the same request", f.number, f.call)
		}
	case unknown && !w.gate.doubted(c.id):
		w.violatef("call %d (%s) says unknown, and each COMMIT of its was answered: %v", f.number, f.call, f.err)
	case f.before.final() && f.call == run && errors.Is(f.err, staged.ErrStale):
		w.violatef("call %d (%s) says %v, and %s had ended when it began", f.number, f.call, f.err, f.request.Key)
	case c.ctx.Err() != nil || !w.clean:
	case errors.Is(f.err, idempotency.ErrInProgress) && (f.call == start || f.op.Wait == holdfast.NoWait || waited >= min(stagedWait, max(f.op.Wait, tick))):
	case errors.Is(f.err, staged.ErrStale) && row.voided():
	default:
		w.violatef("call %d (%s) without a fault: %v", f.number, f.call, f.err)
	}
}

// never reports whether an error has no place here.
func (*stagedScene) never(err error) bool {
	for _, no := range []error{errUnknown, idempotency.ErrExpired, idempotency.ErrNested, staged.ErrInTx, staged.ErrState, staged.ErrNotFound, holdfast.ErrInvalid} {
		if errors.Is(err, no) {
			return true
		}
	}
	return errors.As(err, new(*staged.AcceptedError))
}

// tooLate checks the answer of a cancel that came too late.
func (w *stagedScene) tooLate(f *stagedCall, row record, late *idempotency.TooLateError) {
	stored := row.rejection()
	switch {
	case row == nil, row.voided():
		w.violatef("call %d says too late, and %s is %v", f.number, f.request.Key, row)
	case late.State == idempotency.StateSucceeded && row[opState] != succeededState,
		late.State == idempotency.StateRejected && (stored == nil || late.Rejection == nil || stored.Code != late.Rejection.Code):
		w.violatef("call %d says too late, %v, and %s is %v", f.number, late, f.request.Key, row)
	}
}

// completed checks a pass of a completer, or several.
func (w *stagedScene) completed(c *caller, f *stagedCall) {
	err := errors.Join(append(slices.Clone(f.done.Errs), f.err)...)
	switch left := gaveUpError(f.number); {
	case f.call == completer && !errors.Is(f.err, left):
		w.violatef("call %d (%s) ended without the end of its context: %v", f.number, f.call, f.err)
	case w.never(err), w.clean && err != nil && c.ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
		w.violatef("call %d (%s): %v", f.number, f.call, err)
	}
}

// lookedUp checks the answer of Lookup.
func (w *stagedScene) lookedUp(c *caller, f *stagedCall, row record) {
	ended := f.found.State == idempotency.StateSucceeded || f.found.State == idempotency.StateRejected
	switch {
	case errors.Is(f.err, idempotency.ErrMismatch):
		w.erred(c, f, row)
	case f.err != nil && (w.never(f.err) || w.clean && c.ctx.Err() == nil):
		w.violatef("call %d (lookup): %v", f.number, f.err)
	case f.err != nil:
	case ended:
		if f.found.Rejection != nil {
			f.err = f.found.Rejection
		}
		f.value = f.found.Value
		w.says(f, row)
	case f.before.final():
		w.violatef("call %d (lookup) says %v, and %s had ended when it began", f.number, f.found.State, f.request.Key)
	}
}

// rested checks that nothing is left.
func (w *stagedScene) rested() {
	if w.records.writer != nil {
		w.violatef("a transaction is open, and no call runs")
	}
	for _, key := range w.keys {
		if row := w.opOf(key); row != nil && row[opState] == claimedState {
			w.violatef("%s has not ended", key)
		}
	}
	for p := range w.processes {
		here := reflect.ValueOf(w.runners[p]).Elem().FieldByName("local").Elem()
		for _, name := range []string{"here", "watch", "queue"} {
			if n := here.FieldByName(name).Len(); n > 0 {
				w.violatef("process %d has %d of %s, and no call runs", p, n, name)
			}
		}
	}
}

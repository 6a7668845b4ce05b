package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// recordOf returns the committed record of a key; nil for none.
func (w *flights) recordOf(key string) record {
	return rowOf(w.records.committed.rows, ofKey, key)
}

// rowOf returns the row whose column is the key; nil for none.
func rowOf(table map[string]record, column int, key string) record {
	for _, row := range table {
		if string(blob(row[column])) == key {
			return row
		}
	}
	return nil
}

// stored is what a record says: the value of an operation that was done, or why it never is.
func (r record) stored() (value int, rej *idempotency.Rejection) {
	if r[ofState] == rejectedState {
		rej = new(idempotency.Rejection)
		_ = json.Unmarshal(blob(r[ofResult]), rej)
		value, _ = strconv.Atoi(rej.Message)
		return value, rej
	}
	_ = json.Unmarshal(blob(r[ofResult]), &value)
	return value, nil
}

// fresh checks that the function does not run for an operation that is over.
func (w *flights) fresh(s *statement) {
	key := as[string](s.args[0])
	for _, row := range s.conn.txn.rows {
		if string(blob(row[ofKey])) == key && row[ofState] != claimedState {
			w.violatef("the function of %s runs, and there was a record", key)
		}
	}
}

// check checks, after each commit, that a key has at most one effect, and that one if and only if its record says so. It ends
// the transactions of connections that were closed.
func (w *flights) check() {
	w.swept()
	w.watch()
	if w.commits == w.records.commits {
		return
	}
	w.commits = w.records.commits
	for _, key := range w.keys {
		effects, row := w.records.committed.effects[key], w.recordOf(key)
		if row == nil {
			if len(effects) > 0 {
				w.violatef("%s has the effects %v, and no record", key, effects)
			}
			continue
		}
		value, rej := row.stored()
		switch f := w.made[value/runsOfCall]; {
		case f == nil || f.key != key:
			w.violatef("the record of %s has %d, which no call made", key, value)
		case f.gone:
			w.violatef("call %d returned an error, and its record of %s was committed", f.number, key)
		case row[ofState] == succeededState && !slices.Equal(effects, []int64{int64(value)}):
			w.violatef("%s has the effects %v, and its record %d", key, effects, value)
		case rej != nil && len(effects) > 0:
			w.violatef("%s has the effects %v, and was rejected: %v", key, effects, rej)
		case row[ofState] != succeededState && rej == nil:
			w.violatef("the record of %s has the state %v", key, row[ofState])
		}
	}
}

// watch notes which calls are not alone.
func (w *flights) watch() {
	running := 0
	for _, c := range w.callers {
		if c.busy {
			running++
		}
	}
	if running < 2 && w.records.writer == nil {
		return
	}
	for _, c := range w.callers {
		if f := w.running[c]; c.busy && f != nil {
			f.crowd = time.Now()
		}
	}
}

// ended checks the answer of a call.
func (w *flights) ended(c *caller) {
	f := w.running[c]
	f.gone = f.panicked != nil
	w.note("ended", c.id, fmt.Sprint(f.value, f.outcome, f.err, f.panicked, f.found.State))
	row := w.recordOf(f.key)
	switch {
	case f.panicked != nil && (f.panicked != any(funcError(f.number)) || f.how != panics):
		w.violatef("call %d: panic: %v", f.number, f.panicked)
	case f.panicked != nil:
	case f.before && f.runs > 0:
		w.violatef("call %d ran its function, and %s had a record when it began", f.number, f.key)
	case f.call == lookup:
		w.looked(c, f, row)
	default:
		w.answered(c, f, row)
	}
	if v, _ := w.author(row); f.gone && v == f.number && f.call != lookup {
		w.violatef("call %d (%s) returned %v %v, and its record of %s was committed", f.number, f.call, f.err, f.panicked, f.key)
	}
	c.cancel()
}

// author returns the number of the call that made a record.
func (w *flights) author(row record) (number int, of *flight) {
	if row == nil {
		return 0, nil
	}
	value, _ := row.stored()
	return value / runsOfCall, w.made[value/runsOfCall]
}

// answered checks the answer of Do, DoTx and Void.
func (w *flights) answered(c *caller, f *flight, row record) {
	var rej *idempotency.Rejection
	var late *idempotency.TooLateError
	number, of := w.author(row)
	switch {
	case f.err == nil && row == nil:
		w.violatef("call %d (%s) says %v, and %s has no record", f.number, f.call, f.outcome, f.key)
	case f.err == nil, errors.As(f.err, &rej):
		w.definite(f, row, rej)
	case errors.As(f.err, &late):
		w.tooLate(f, row, late)
	case errors.Is(f.err, idempotency.ErrMismatch):
		if of == nil || bytes.Equal(f.op.Fingerprint, of.op.Fingerprint) || f.op.Fingerprint == nil || of.op.Fingerprint == nil {
			w.violatef("call %d (%s) is a mismatch with call %d", f.number, f.call, number)
		}
	default:
		w.failed(c, f)
	}
}

// definite checks an answer that says what became of the operation.
func (w *flights) definite(f *flight, row record, rej *idempotency.Rejection) {
	if row == nil {
		w.violatef("call %d (%s) says %v, and %s has no record", f.number, f.call, rej, f.key)
		return
	}
	value, stored := row.stored()
	number, of := w.author(row)
	switch {
	case f.outcome == idempotency.Executed && number != f.number:
		w.violatef("call %d (%s) says executed, and the record of %s is call %d's", f.number, f.call, f.key, number)
	case f.outcome != idempotency.Executed && f.outcome != idempotency.Replayed:
		w.violatef("call %d (%s) has the outcome %d", f.number, f.call, f.outcome)
	case f.call == void:
		if stored == nil || stored.Code != idempotency.CodeVoided {
			w.violatef("call %d says voided, and the record of %s has %d, %v", f.number, f.key, value, stored)
		}
	case (rej == nil) != (stored == nil) || rej != nil && (rej.Code != stored.Code || rej.Message != stored.Message):
		w.violatef("call %d (%s) says %d, %v, and the record of %s %d, %v", f.number, f.call, f.value, rej, f.key, value, stored)
	case rej == nil && f.value != value:
		w.violatef("call %d (%s) says %d, and the record of %s %d", f.number, f.call, f.value, f.key, value)
	case of != nil && f.op.Fingerprint != nil && of.op.Fingerprint != nil && !bytes.Equal(f.op.Fingerprint, of.op.Fingerprint):
		w.violatef("call %d (%s) got the answer of call %d, whose request is another one", f.number, f.call, number)
	}
	if f.outcome == idempotency.Executed {
		w.effects++
	}
}

func (w *flights) tooLate(f *flight, row record, late *idempotency.TooLateError) {
	if row == nil {
		w.violatef("call %d says too late, and %s has no record", f.number, f.key)
		return
	}
	_, stored := row.stored()
	ok := stored == nil && late.State == idempotency.StateSucceeded && late.Rejection == nil ||
		stored != nil && stored.Code != idempotency.CodeVoided && late.State == idempotency.StateRejected && late.Rejection != nil && late.Rejection.Message == stored.Message
	if !ok {
		w.violatef("call %d says %v, %v, and the record of %s %v", f.number, late, late.Rejection, f.key, stored)
	}
}

// failed checks an error that says that the call has no effect, or that its outcome is not known.
func (w *flights) failed(c *caller, f *flight) {
	var inFunc funcError
	var left gaveUpError
	unknown := errors.Is(f.err, holdfast.ErrUnknown)
	f.gone = !unknown
	waited := time.Since(f.began)
	switch {
	case unknown && !w.gate.doubted(c.id):
		w.violatef("call %d (%s) says unknown, and each COMMIT of its was answered", f.number, f.call)
	case unknown:
	case errors.As(f.err, &left) && (int(left) != f.number || c.ctx.Err() == nil):
		w.violatef("call %d (%s) has the end of another one: %v", f.number, f.call, f.err)
	case errors.As(f.err, &left), c.ctx.Err() != nil:
	case errors.As(f.err, &inFunc):
		if int(inFunc) != f.number || f.how != fails || f.runs == 0 {
			w.violatef("call %d (%s) has the error of another function: %v", f.number, f.call, f.err)
		}
	case errors.Is(f.err, idempotency.ErrInProgress):
		if f.op.Wait != holdfast.NoWait && waited < f.wait() || time.Since(f.crowd) > time.Second && w.busy == 0 {
			w.violatef("call %d (%s) says %v after %v, alone since %v", f.number, f.call, f.err, waited, time.Since(f.crowd))
		}
	case w.clean, errors.Is(f.err, errUnknown), errors.Is(f.err, context.Canceled), errors.Is(f.err, idempotency.ErrExpired), errors.Is(f.err, idempotency.ErrNested):
		w.violatef("call %d (%s): %v", f.number, f.call, f.err)
	}
}

// wait is how long a call waits for another one at most.
func (f *flight) wait() time.Duration {
	switch {
	case f.op.Wait == 0:
		return storeWait
	case f.call == doTx:
		return min(f.op.Wait, lockTimeout)
	}
	return f.op.Wait
}

// looked checks the answer of Lookup.
func (w *flights) looked(c *caller, f *flight, row record) {
	switch {
	case f.err != nil && c.ctx.Err() != nil:
		return
	case errors.Is(f.err, idempotency.ErrMismatch):
		w.answered(c, f, row)
		return
	case f.err != nil && w.clean, errors.Is(f.err, errUnknown):
		w.violatef("call %d (lookup): %v", f.number, f.err)
		return
	case f.err != nil:
		return
	}
	var value int
	var stored *idempotency.Rejection
	state := idempotency.StateAbsent
	if row != nil {
		if value, stored = row.stored(); stored == nil {
			state = idempotency.StateSucceeded
		} else {
			state = idempotency.StateRejected
		}
	}
	switch got := f.found; {
	case got.State == idempotency.StateAbsent && !f.before: // its read may be older than the record
	case got.State != state, state == idempotency.StateSucceeded && got.Value != value:
		w.violatef("call %d (lookup) says %v, %d, and the record of %s is %v, %d", f.number, got.State, got.Value, f.key, state, value)
	case state == idempotency.StateRejected && (got.Rejection == nil || got.Rejection.Message != stored.Message):
		w.violatef("call %d (lookup) says %v, and the record of %s %v", f.number, got.Rejection, f.key, stored)
	}
}

// rested checks that no transaction and no flight remains.
func (w *flights) rested() {
	if w.records.writer != nil {
		w.violatef("a transaction is open, and no call runs")
	}
	for p, s := range w.stores {
		for _, name := range []string{"flights", "peeks", "similar"} {
			if n := reflect.ValueOf(s).Elem().FieldByName(name).Elem().FieldByName("running").Len(); n > 0 {
				w.violatef("process %d has %d %s, and no call runs", p, n, name)
			}
		}
	}
}

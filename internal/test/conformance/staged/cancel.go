package staged

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// undoing is a refund whose operations can be cancelled after they have booked.
func (e *env[Tx]) undoing(lease time.Duration) (*refund[Tx], *staged.Runner[string, string, Tx]) {
	f := &refund[Tx]{e: e, provider: newProvider()}
	stages := f.stages()
	stages.Lease = lease
	stages.Undo = func(ctx context.Context, tx Tx, request string, op staged.Operation) error {
		if op.Key != request {
			e.Errorf("undo has the request %q of %q", request, op.Key)
		}
		return e.Effect(ctx, tx, op.Key+" undone")
	}
	return f, e.staged(stages, idempotency.Options{})
}

// cancel cancels an operation, and fails unless the outcome is want.
func (e *env[Tx]) cancel(s *staged.Runner[string, string, Tx], key string, want idempotency.Outcome) {
	e.Helper()
	if o, err := s.Cancel(e.Ctx, stagedOp(key), "cancelled by the customer"); o != want || err != nil {
		e.Errorf("cancel %s: %v, %v, want %v", key, o, err, want)
	}
}

// tooLate fails unless a cancel of an operation comes too late.
func (e *env[Tx]) tooLate(s *staged.Runner[string, string, Tx], key string, want idempotency.State, reason string) {
	e.Helper()
	_, err := s.Cancel(e.Ctx, stagedOp(key), "cancelled by the customer")
	var late *idempotency.TooLateError
	if !errors.Is(err, idempotency.ErrTooLate) || !errors.As(err, &late) || late.State != want || !strings.Contains(late.Reason, reason) {
		e.Errorf("cancel %s: %v, want too late, %v, %q", key, err, want, reason)
	}
}

// isCancelled fails unless an operation is rejected as cancelled, and has done nothing.
func (e *env[Tx]) isCancelled(s *staged.Runner[string, string, Tx], key string) {
	e.Helper()
	var rej *idempotency.Rejection
	for _, request := range []string{key, "another"} {
		_, err := s.Do(e.Ctx, stagedOp(key), request)
		if !errors.As(err, &rej) || rej.Code != idempotency.CodeVoided || rej.Message != "cancelled by the customer" {
			if request == key || !errors.Is(err, idempotency.ErrMismatch) {
				e.Errorf("%s: %v, want that it is cancelled", key, err)
			}
		}
	}
	if found := e.wantFound(s, key, idempotency.StateRejected); found.Rejection == nil || found.Rejection.Code != idempotency.CodeVoided {
		e.Errorf("%s: %+v", key, found)
	}
	if booked, undone := e.Effects(key), e.Effects(key+" undone"); booked > undone || e.Effects(key+" closed") > 0 {
		e.Errorf("%s was booked %d times, undone %d times", key, booked, undone)
	}
}

// stagedCancelBefore cancels an operation that has not begun. Its original comes later, and is refused.
func stagedCancelBefore[Tx any](e *env[Tx]) {
	f, s := e.undoing(0)
	_, other := e.stagedRefunds(0)
	e.cancel(s, "a", idempotency.Executed)
	e.cancel(s, "a", idempotency.Replayed)
	e.cancel(other, "a", idempotency.Replayed)
	e.isCancelled(s, "a")
	e.isCancelled(other, "a")
	if n := e.Effects("a undone"); n != 0 {
		e.Error("nothing was done, and it was undone")
	}
	if st := e.started(s, "a"); st.New {
		e.Error("a cancelled operation began")
	} else if _, err := st.Wait(e.Ctx); err == nil {
		e.Error("a cancelled operation succeeded")
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
		e.Errorf("%+v, %v", done, err)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE key_expires_at IS NULL AND state = 3`); n != 1 {
		e.Errorf("%d cancelled operations are kept for ever", n)
	}
	short := e.staged(f.stages(), idempotency.Options{KeyTTL: time.Hour})
	e.cancel(short, "hour", idempotency.Executed)
	e.Must(`UPDATE holdfast_staged SET result_expires_at = 1, key_expires_at = 1 WHERE key_expires_at IS NOT NULL`)
	e.cancel(short, "hour", idempotency.Executed)
	e.isCancelled(short, "hour")
	brief := e.staged(f.stages(), idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: time.Hour})
	e.cancel(brief, "brief", idempotency.Executed)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE op_key = $1 AND result_expires_at - finished_at > 1800000000`, []byte("brief")); n != 1 {
		e.Error("the reason of a cancel ends before its key")
	}
	f.provider.want(e, 0, 0)
}

// stagedCancelWaiting cancels operations that wait: one that has not been tried, one whose step is booked and whose call
// was not done, and one that is parked after that.
func stagedCancelWaiting[Tx any](e *env[Tx]) {
	f, s := e.undoing(0)
	_, plain := e.stagedRefunds(0)
	st := e.started(plain, "new")
	if o, err := plain.CancelID(e.Ctx, st.ID, "cancelled by the customer"); o != idempotency.Executed || err != nil {
		e.Errorf("by its ID: %v, %v", o, err)
	}
	e.isCancelled(plain, "new")
	st = e.started(s, "begun")
	e.cancel(s, "begun", idempotency.Executed)
	e.isCancelled(s, "begun")
	e.WantOnce("begun undone")
	if _, err := st.Wait(e.Ctx); err == nil {
		e.Error("a cancelled operation succeeded")
	}
	if _, err := s.CancelID(e.Ctx, make([]byte, 32), "none"); !errors.Is(err, staged.ErrNotFound) {
		e.Errorf("an ID of none: %v", err)
	}

	f.call = func(context.Context, string) (string, error) { return "", staged.NotDone(errors.New("refused")) }
	for _, key := range []string{"booked", "again"} {
		if _, err := s.Do(e.Ctx, stagedOp(key), key); err == nil {
			e.Error("the call was not done, and the operation succeeded")
		}
	}
	e.tooLate(plain, "booked", idempotency.StateWaiting, `step "book" is done`)
	e.cancel(s, "booked", idempotency.Executed)
	e.isCancelled(s, "booked")
	e.WantOnce("booked undone")
	e.cancel(s, "booked", idempotency.Replayed)
	e.WantOnce("booked undone")

	for e.show("again").State != idempotency.StateUnknown { // its attempts are used up
		_, _ = s.Do(e.Ctx, stagedOp("again"), "again")
	}
	e.cancel(s, "again", idempotency.Executed)
	e.isCancelled(s, "again")
	f.provider.want(e, 0, 0)

	callsOnly := f.stages()
	callsOnly.Run = func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, f.call)
	}
	s = e.staged(callsOnly, idempotency.Options{})
	if _, err := s.Do(e.Ctx, stagedOp("not done"), "not done"); err == nil {
		e.Error("the call was not done, and the operation succeeded")
	}
	e.cancel(s, "not done", idempotency.Executed) // without Undo
	e.isCancelled(s, "not done")
}

// stagedCancelTooLate cancels what has called the provider, or has ended.
func stagedCancelTooLate[Tx any](e *env[Tx]) {
	f, s := e.undoing(0)
	if _, err := s.Do(e.Ctx, stagedOp("done"), "done"); err != nil {
		e.Fatal(err)
	}
	e.tooLate(s, "done", idempotency.StateSucceeded, "")
	e.wantRefunded("done")

	f.call = func(context.Context, string) (string, error) {
		e.tooLate(s, "during", idempotency.StateInProgress, `the call of step "pay" has begun`)
		return "paid", nil
	}
	if _, err := s.Do(e.Ctx, stagedOp("during"), "during"); err != nil {
		e.Error(err)
	}
	e.wantRefunded("during")

	f.call = func(context.Context, string) (string, error) { return "", errTimeout }
	_, err := s.Do(e.Ctx, stagedOp("parked"), "parked")
	if !errors.Is(err, idempotency.ErrUnknown) {
		e.Error(err)
	}
	e.tooLate(s, "parked", idempotency.StateUnknown, `the call of step "pay" has begun`)
	f.call = func(context.Context, string) (string, error) { return "", staged.Accepted("re_1", time.Hour) }
	f.outside.Provider = "bank"
	_, _ = s.Do(e.Ctx, stagedOp("settling"), "settling")
	e.tooLate(s, "settling", idempotency.StateSettling, `the call of step "pay" has begun`)
	f.call = func(context.Context, string) (string, error) {
		return "", idempotency.Reject("closed", "the account is closed")
	}
	_, _ = s.Do(e.Ctx, stagedOp("refused"), "refused")
	e.tooLate(s, "refused", idempotency.StateRejected, "")

	e.started(s, "restored")
	e.Must(`UPDATE holdfast_staged SET restored = 1 WHERE state = 1`)
	e.tooLate(s, "restored", idempotency.StateWaiting, "restored")
	if e.Effects("parked undone")+e.Effects("settling undone")+e.Effects("done undone") != 0 {
		e.Error("what was too late was undone")
	}
}

// stagedCancelDoubt makes a call twice: the first has no answer, and the second was not done. The first may yet be.
func stagedCancelDoubt[Tx any](e *env[Tx]) {
	f, s := e.undoing(0)
	f.outside.OnLeaseEnd = staged.TakeOver
	n := 0
	f.call = func(_ context.Context, key string) (string, error) {
		switch n++; n {
		case 1:
			return "", errTimeout
		case 2:
			return "", staged.NotDone(errors.New("refused"))
		}
		return f.provider.pay(key), nil
	}
	for n < 2 {
		_, _ = s.Do(e.Ctx, stagedOp("a"), "a")
	}
	e.tooLate(s, "a", idempotency.StateWaiting, `the call of step "pay" has begun`)
	e.Eventually("it is paid", func() bool {
		_, err := s.Do(e.Ctx, stagedOp("a"), "a")
		return err == nil
	})
	e.wantRefunded("a")
}

// stagedCancelWorker cancels an operation that a worker has, before its call: the worker loses it and makes no call.
func stagedCancelWorker[Tx any](e *env[Tx]) {
	f, s := e.undoing(0)
	_, other := e.undoing(0)
	f.before = func(int) error {
		e.cancel(other, "a", idempotency.Executed)
		return nil
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, staged.ErrStale) {
		e.Errorf("a worker whose operation was cancelled: %v", err)
	}
	e.isCancelled(s, "a")
	e.WantOnce("a undone")
	f.provider.want(e, 0, 0)

	// In its own function it would wait for itself.
	f.before = func(int) error { return nil }
	f.call = func(ctx context.Context, _ string) (string, error) {
		_, err := s.Cancel(ctx, stagedOp("itself"), "itself")
		if !errors.Is(err, idempotency.ErrNested) {
			e.Errorf("in its own function: %v", err)
		}
		return "paid", nil
	}
	if _, err := s.Do(e.Ctx, stagedOp("itself"), "itself"); err != nil {
		e.Error(err)
	}
}

// stagedUndoFails cancels with an Undo that fails: nothing happens, and the operation goes on.
func stagedUndoFails[Tx any](e *env[Tx]) {
	f := &refund[Tx]{e: e, provider: newProvider()}
	stages, boom := f.stages(), errors.New("boom")
	stages.Undo = func(ctx context.Context, tx Tx, _ string, op staged.Operation) error {
		return errors.Join(e.Effect(ctx, tx, op.Key+" undone"), boom)
	}
	s := e.staged(stages, idempotency.Options{})
	e.started(s, "a")
	if _, err := s.Cancel(e.Ctx, stagedOp("a"), "no"); !errors.Is(err, boom) {
		e.Errorf("an Undo that fails: %v", err)
	}
	if n := e.Effects("a undone"); n != 0 {
		e.Errorf("%d effects of a failed Undo", n)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	e.wantRefunded("a")
	for name, reason := range map[string]string{"none": "", "long": strings.Repeat("x", 501)} {
		if _, err := s.Cancel(e.Ctx, stagedOp("a"), reason); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("a reason: %s: %v", name, err)
		}
	}
	for name, op := range map[string]idempotency.Op{"no key": {}, "another name": {Name: "other", Key: "a"}} {
		if _, err := s.Cancel(e.Ctx, op, "no"); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.CancelID(e.Ctx, []byte("short"), "no"); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no ID: %v", err)
	}
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, _ Tx) error {
		_, err := s.Cancel(ctx, stagedOp("a"), "no")
		return err
	})
	if !errors.Is(err, staged.ErrInTx) {
		e.Errorf("in a transaction: %v", err)
	}
}

// stagedCancelBeside runs originals, their cancels and a completer beside each other. Each operation is paid, or cancelled.
func stagedCancelBeside[Tx any](e *env[Tx]) {
	f, s := e.undoing(0)
	_, other := e.undoing(0)
	const keys = 16
	var wg sync.WaitGroup
	var mu sync.Mutex
	cancelled := map[string]bool{}
	for i := range keys {
		key := fmt.Sprint("key ", i)
		wg.Go(func() {
			var rej *idempotency.Rejection
			for {
				_, err := s.Do(e.Ctx, stagedOp(key), key)
				if errors.Is(err, staged.ErrStale) || errors.Is(err, holdfast.ErrRetry) {
					continue
				}
				if err != nil && !errors.As(err, &rej) {
					e.Errorf("Do %s: %v", key, err)
				}
				return
			}
		})
		wg.Go(func() {
			for {
				_, err := other.Cancel(e.Ctx, stagedOp(key), "cancelled by the customer")
				switch {
				case errors.Is(err, holdfast.ErrRetry):
					continue
				case err == nil:
					mu.Lock()
					cancelled[key] = true
					mu.Unlock()
				case !errors.Is(err, idempotency.ErrTooLate):
					e.Errorf("Cancel %s: %v", key, err)
				}
				return
			}
		})
	}
	wg.Wait()
	paid := 0
	for i := range keys {
		key := fmt.Sprint("key ", i)
		if is := f.provider.has(s.ProviderKey(ref(key), "pay")); is == cancelled[key] {
			e.Errorf("%s: cancelled %v, and paid %v", key, cancelled[key], is)
		}
		if cancelled[key] {
			e.isCancelled(s, key)
			continue
		}
		paid++
		e.wantRefunded(key)
	}
	f.provider.want(e, paid, paid)
	e.Logf("%d of %d were cancelled", keys-paid, keys)
}

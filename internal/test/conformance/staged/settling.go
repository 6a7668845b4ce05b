package staged

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// accepts makes a provider that accepts a call and pays later.
func accepts[Tx any](e *env[Tx], key string, within time.Duration, outside staged.ExternalCall[string]) (*refund[Tx], *staged.Runner[string, string, Tx]) {
	e.Helper()
	f, s := e.stagedRefunds(0)
	outside.Provider = "bank"
	f.outside = outside
	f.call = func(_ context.Context, provider string) (string, error) {
		f.provider.pay(provider)
		return "", staged.Accepted("re_"+key, within)
	}
	var accepted *staged.AcceptedError
	_, err := s.Do(e.Ctx, stagedOp(key), key)
	if !errors.As(err, &accepted) || accepted.Step != "pay" || !errors.Is(err, idempotency.ErrInProgress) || errors.Is(err, idempotency.ErrUnknown) {
		e.Errorf("%s: accepted: %v", key, err)
	}
	return f, s
}

func settled(key string) staged.ProviderEvent {
	return staged.ProviderEvent{ID: "evt", Provider: "bank", Reference: "re_" + key, Outcome: staged.StepDone, Result: "by webhook"}
}

// stagedAccepted lets a provider accept a call. The step is settling, not unknown; an event by the
// provider's own reference settles it, and the operation goes on.
func stagedAccepted[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	f, s := accepts(e, "a", time.Hour, staged.ExternalCall[string]{})
	op := e.wantState("a", idempotency.StateSettling)
	if op.Step != "pay" || op.Due < 50*time.Minute || op.Reason != "" {
		e.Errorf("%+v", op)
	}
	step := stepOf(op, "pay")
	if step.State != staged.Settling || step.Provider != "bank" || step.Reference != "re_a" || time.Until(step.Deadline) < 50*time.Minute {
		e.Errorf("%+v", step)
	}
	if found := e.wantFound(s, "a", idempotency.StateSettling); found.Due < 50*time.Minute {
		e.Errorf("%+v", found)
	}
	// A duplicate, and the completer, do not call again.
	var accepted *staged.AcceptedError
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.As(err, &accepted) || accepted.Left < 50*time.Minute {
		e.Errorf("a duplicate: %v", err)
	}
	if _, err := e.started(s, "a").Wait(e.Ctx); !errors.As(err, &accepted) {
		e.Errorf("to wait for it: %v", err)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
		e.Errorf("%+v, %v", done, err)
	}
	f.provider.want(e, 1, 1)
	for name, event := range map[string]staged.ProviderEvent{
		"another provider":  {ID: "1", Provider: "other", Reference: "re_a"},
		"another reference": {ID: "1", Provider: "bank", Reference: "re_b"},
		"another case":      {ID: "1", Provider: "bank", Reference: "RE_A"},
	} {
		if _, err := staged.HandleEvent(e.Ctx, store, event, nil); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("%s: %v", name, err)
		}
	}
	wrong := settled("a")
	wrong.Result = 1
	if _, err := staged.HandleEvent(e.Ctx, store, wrong, nil); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a result of another type: %v", err)
	}
	for n, want := range []bool{true, false} {
		if isNew, err := staged.HandleEvent(e.Ctx, store, settled("a"), nil); err != nil || isNew != want {
			e.Errorf("delivery %d: %v, %v", n, isNew, err)
		}
	}
	if op := e.wantState("a", idempotency.StateWaiting); op.Due > 0 {
		e.Errorf("it waits for its deadline: %+v", op)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "by webhook" {
		e.Errorf("%v, %v", r, err)
	}
	e.wantRefunded("a")
	f.provider.want(e, 1, 1)
	// It may be refused in the end, or not be done.
	for key, event := range map[string]staged.ProviderEvent{
		"refused":  {Outcome: staged.StepRejected, Rejection: &idempotency.Rejection{Code: "closed"}},
		"not done": {Outcome: staged.StepNotDone},
	} {
		f, s := accepts(e, key, time.Hour, staged.ExternalCall[string]{})
		f.call = nil
		event.ID, event.Provider, event.Reference = "evt", "bank", "re_"+key
		if _, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil {
			e.Errorf("%s: %v", key, err)
		}
		_, err := s.Do(e.Ctx, stagedOp(key), key)
		if (err == nil) != (key == "not done") {
			e.Errorf("%s: %v", key, err)
		}
	}
}

func stepOf(op *staged.Operation, name string) staged.Step {
	for _, st := range op.Steps {
		if st.Name == name {
			return st
		}
	}
	return staged.Step{}
}

// stagedDeadline lets the deadline of an accepted call pass. It is reconciled, called again or parked.
func stagedDeadline[Tx any](e *env[Tx]) {
	const soon = 50 * time.Millisecond
	due := func(s *staged.Runner[string, string, Tx]) (done staged.Completed) {
		e.Helper()
		e.Eventually("the deadline has passed", func() bool {
			var err error
			done, err = s.Complete(e.Ctx)
			return err != nil || done.Found > 0
		})
		return done
	}
	asked := 0
	answer := error(nil)
	asks := staged.ExternalCall[string]{Reconcile: func(ctx context.Context, key string) (string, error) {
		asked++
		staged.SetReference(ctx, "re_reconciled")
		return "reconciled " + key, answer
	}}
	// The provider has paid.
	f, s := accepts(e, "paid", soon, asks)
	if done := due(s); done.Succeeded != 1 || asked != 1 {
		e.Errorf("%+v, asked %d times", done, asked)
	}
	f.provider.want(e, 1, 1)
	if st := stepOf(e.show("paid"), "pay"); st.Reference != "re_reconciled" || !st.Deadline.IsZero() {
		e.Errorf("%+v", st)
	}
	e.wantRefunded("paid")
	// It needs more time, then it has refused.
	answer = staged.Accepted("", soon)
	_, s = accepts(e, "later", soon, asks)
	if done := due(s); done.Settling != 1 {
		e.Errorf("%+v", done)
	}
	if st := stepOf(e.show("later"), "pay"); st.State != staged.Settling {
		e.Errorf("%+v", st)
	}
	answer = idempotency.Reject("closed", "")
	if done := due(s); done.Rejected != 1 {
		e.Errorf("%+v", done)
	}
	// The provider cannot be asked: a person has to look.
	f, s = accepts(e, "parked", soon, staged.ExternalCall[string]{})
	if done := due(s); done.Parked != 1 {
		e.Errorf("%+v", done)
	}
	f.provider.want(e, 1, 1)
	if op := e.wantState("parked", idempotency.StateUnknown); op.Step != "pay" || op.Reason == "" {
		e.Errorf("%+v", op)
	}
	// An event after that settles it all the same.
	if _, err := staged.HandleEvent(e.Ctx, e.Store(idempotency.Options{}), settled("parked"), nil); err != nil {
		e.Error(err)
	}
	if done := due(s); done.Succeeded != 1 {
		e.Errorf("%+v", done)
	}
	f.provider.want(e, 1, 1)
	// The provider honours the key.
	f, s = accepts(e, "again", soon, staged.ExternalCall[string]{OnLeaseEnd: staged.TakeOver})
	f.call = nil
	if done := due(s); done.Succeeded != 1 {
		e.Errorf("%+v", done)
	}
	f.provider.want(e, 1, 2)
	// A deadline that is none.
	f, s = e.stagedRefunds(0)
	for n, bad := range []error{staged.Accepted("", 0), staged.Accepted("", 11*365*24*time.Hour), staged.Accepted("a\x00b", time.Hour)} {
		f.call = func(context.Context, string) (string, error) { return "", bad }
		if _, err := s.Do(e.Ctx, stagedOp(fmt.Sprint("bad ", n)), "a"); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%v: %v", bad, err)
		}
	}
}

// stagedEventOvertakes delivers the event during the call, before its worker stores "accepted", and by
// the reference before it is known.
func stagedEventOvertakes[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	f, s := e.stagedRefunds(0)
	f.outside.Provider = "bank"
	f.call = func(ctx context.Context, key string) (string, error) {
		f.provider.pay(key)
		if _, err := staged.HandleEvent(ctx, store, settled("a"), nil); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("by a reference that is not known yet: %v", err)
		}
		event := settled("a")
		event.Provider, event.Reference, event.ProviderKey = "", "", key
		if _, err := staged.HandleEvent(ctx, store, event, nil); err != nil {
			e.Error(err)
		}
		return "", staged.Accepted("re_a", time.Hour)
	}
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "by webhook" {
		e.Errorf("%v, %v", r, err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
}

// stagedReversed takes a call back that was done: the event lands on the record, and the result stays.
func stagedReversed[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	f, s := e.stagedRefunds(0)
	f.outside.Provider = "bank"
	f.call = func(ctx context.Context, key string) (string, error) {
		staged.SetReference(ctx, "re_a")
		return f.provider.pay(key), nil
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Fatal(err)
	}
	reversed := staged.ProviderEvent{ID: "evt_2", Kind: "refund.failed", Provider: "bank", Reference: "re_a", Outcome: staged.StepReversed}
	for _, want := range []bool{true, false} {
		isNew, err := staged.HandleEvent(e.Ctx, store, reversed, func(ctx context.Context, tx Tx, op staged.Operation) error {
			if op.Reversed.IsZero() || op.State != idempotency.StateSucceeded {
				e.Errorf("the function sees %+v", op)
			}
			return e.Effect(ctx, tx, "taken back")
		})
		if isNew != want || err != nil {
			e.Errorf("%v, %v", isNew, err)
		}
	}
	e.WantOnce("taken back")
	op := e.wantState("a", idempotency.StateSucceeded)
	if st := stepOf(op, "pay"); op.Reversed.IsZero() || st.Reversed.IsZero() || st.State != staged.Succeeded || len(op.Events) != 1 || op.Events[0].Kind != "refund.failed" {
		e.Errorf("%+v", op)
	}
	if found := e.wantFound(s, "a", idempotency.StateSucceeded); found.Reversed.IsZero() {
		e.Errorf("%+v", found)
	}
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("%v, %v", r, err)
	}
	// A second report keeps the first time. What was not done cannot be taken back.
	first := op.Reversed
	reversed.ID = "evt_3"
	if isNew, err := staged.HandleEvent(e.Ctx, store, reversed, nil); !isNew || err != nil {
		e.Errorf("%v, %v", isNew, err)
	}
	if op := e.show("a"); !op.Reversed.Equal(first) || len(op.Events) != 2 {
		e.Errorf("%+v", op)
	}
	accepts(e, "b", time.Hour, staged.ExternalCall[string]{})
	reversed.Reference = "re_b"
	if _, err := staged.HandleEvent(e.Ctx, store, reversed, nil); !errors.Is(err, staged.ErrState) {
		e.Errorf("of a settling step: %v", err)
	}
	if op := e.wantState("b", idempotency.StateSettling); len(op.Events) != 0 {
		e.Errorf("%+v", op)
	}
}

// stagedHeartbeat makes a call that takes longer than its lease. It is renewed, and no other worker gets the
// operation; with a worker that stands still, the lease ends.
func stagedHeartbeat[Tx any](e *env[Tx]) {
	// On a machine that is too slow to renew the lease in time, a longer one is tried.
	lease := 300 * time.Millisecond
	f, s := e.stagedRefunds(time.Minute)
	for ; ; lease *= 2 {
		key := lease.String()
		f, s = e.stagedRefunds(time.Minute)
		f.outside = staged.ExternalCall[string]{Lease: lease, Timeout: time.Hour}
		began, taken := time.Now(), 0
		f.call = func(ctx context.Context, key string) (string, error) {
			for time.Since(began) < 4*lease {
				if done, err := s.Complete(e.Ctx); err == nil {
					taken += done.Found
				}
				if ctx.Err() != nil {
					return "", context.Cause(ctx)
				}
				time.Sleep(lease / 10)
			}
			return f.provider.pay(key), nil
		}
		_, err := s.Do(e.Ctx, stagedOp(key), key)
		if err == nil {
			if taken != 0 {
				e.Error("somebody else got it")
			}
			e.wantRefunded(key)
			break
		}
		if lease > 20*time.Second || !errors.Is(err, idempotency.ErrUnknown) && !errors.Is(err, staged.ErrStale) {
			e.Fatal(err)
		}
	}
	f.provider.want(e, 1, 1)
	// The call's own bound.
	f.outside.Timeout, f.outside.OnLeaseEnd = 20*time.Millisecond, staged.TakeOver
	f.call = func(ctx context.Context, _ string) (string, error) { <-ctx.Done(); return "", context.Cause(ctx) }
	var open *staged.StepError
	if _, err := s.Do(e.Ctx, stagedOp("b"), "b"); !errors.As(err, &open) || !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("past its timeout: %v", err)
	}
	// A worker that lost the operation learns it from its renewal.
	f.outside = staged.ExternalCall[string]{Lease: lease, Timeout: time.Hour}
	f.call = func(ctx context.Context, _ string) (string, error) {
		e.Must(`UPDATE holdfast_staged SET token = token + 1, attempt = NULL WHERE operation = 'refund' AND state = 1 AND attempt IS NOT NULL`)
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	if _, err := s.Do(e.Ctx, stagedOp("c"), "c"); !errors.Is(err, staged.ErrStale) {
		e.Errorf("lost: %v", err)
	}
	for _, bad := range []staged.ExternalCall[string]{{Timeout: -1}, {Timeout: 31 * 24 * time.Hour}, {Provider: string(make([]byte, 65))}} {
		f.outside = bad
		if _, err := s.Do(e.Ctx, stagedOp(fmt.Sprintf("%+v", bad.Timeout)), "d"); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", bad, err)
		}
	}
}

// stagedHungWorker lets a call of this process's completer hang past its lease. The same completer, in its
// next pass, takes the operation over, and the late answer is refused.
func stagedHungWorker[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(shortLease)
	f.outside.OnLeaseEnd = staged.TakeOver
	inside, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.call = func(_ context.Context, key string) (string, error) {
		hangs := false
		once.Do(func() { hangs = true; close(inside) })
		if hangs {
			<-free
		}
		return f.provider.pay(key), nil
	}
	e.started(s, "a")
	first := make(chan staged.Completed)
	go func() {
		for {
			done, err := s.Complete(e.Ctx)
			if err != nil {
				e.Error(err)
			}
			if err != nil || done.Failed == 0 && done.Found > 0 { // a slow machine may not reach the call within the lease
				first <- done
				return
			}
		}
	}()
	<-inside
	e.Eventually("it is taken over", func() bool {
		done, err := s.Complete(e.Ctx)
		return err != nil || done.Succeeded == 1
	})
	close(free)
	if done := <-first; done.Busy != 1 {
		e.Errorf("the late worker: %+v", done)
	}
	f.provider.want(e, 1, 2)
	e.wantRefunded("a")
}

package staged

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Suite is the suite of the staged operations, with every legal and illegal transition.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"StagedOnce":              stagedOnce[Tx],
		"LocalEndsTheTransaction": localEndsTheTransaction[Tx],
		"LocalMisbehaves":         localMisbehaves[Tx],
		"AnothersID":              anothersID[Tx],
		"WaitOfADeadKey":          waitOfADeadKey[Tx],
		"OutcomesOfNobody":        outcomesOfNobody[Tx],
		"UndoEndsTheTransaction":  undoEndsTheTransaction[Tx],
		"StagedResumes":           stagedResumes[Tx],
		"StagedStampede":          stagedStampede[Tx],
		"StagedStaleWorker":       stagedStaleWorker[Tx],
		"StagedStaleLocal":        stagedStaleLocal[Tx],
		"StagedTwoWorkers":        stagedTwoWorkers[Tx],
		"StagedRenewed":           stagedRenewed[Tx],
		"StagedParks":             stagedParks[Tx],
		"StagedLeaseEndParks":     stagedLeaseEndParks[Tx],
		"StagedReconciles":        stagedReconciles[Tx],
		"StagedNotDone":           stagedNotDone[Tx],
		"StagedRejects":           stagedRejects[Tx],
		"StagedNotOverruled":      stagedNotOverruled[Tx],
		"StagedAttempts":          stagedAttempts[Tx],
		"StagedCaller":            stagedCaller[Tx],
		"StagedInput":             stagedInput[Tx],
		"StagedCompleter":         stagedCompleter[Tx],
		"StagedEvents":            stagedEvents[Tx],
		"StagedEventsSettles":     stagedEventsSettles[Tx],
		"StagedEventsFirst":       stagedEventsFirst[Tx],
		"StagedResultType":        stagedResultType[Tx],
		"StagedResultUnread":      stagedResultUnread[Tx],
		"StagedExact":             stagedExact[Tx],
		"StagedUnstorable":        stagedUnstorable[Tx],
		"StagedResultChanged":     stagedResultChanged[Tx],
		"StagedWithin":            stagedWithin[Tx],
		"StagedStart":             stagedStart[Tx],
		"StagedStartTwice":        stagedStartTwice[Tx],
		"StagedStartSnapshot":     stagedStartSnapshot[Tx],
		"StagedStartWaits":        stagedStartWaits[Tx],
		"StagedLookup":            stagedLookup[Tx],
		"StagedAccepted":          stagedAccepted[Tx],
		"StagedDeadline":          stagedDeadline[Tx],
		"StagedEventOvertakes":    stagedEventOvertakes[Tx],
		"StagedReversed":          stagedReversed[Tx],
		"StagedContradicts":       stagedContradicts[Tx], "StagedContradictsEnded": stagedContradictsEnded[Tx],
		"StagedContradictsDecided": stagedContradictsDecided[Tx],
		"StagedEventAfterDecision": stagedEventAfterDecision[Tx],
		"StagedEventOfAnotherStep": stagedEventOfAnotherStep[Tx],
		"EventEndsTheTransaction":  eventEndsTheTransaction[Tx],
		"StagedAnsweredMeanwhile":  stagedAnsweredMeanwhile[Tx], "StagedNotDoneEndsTheAttempt": stagedNotDoneEndsTheAttempt[Tx],
		"StagedReferenceKept": stagedReferenceKept[Tx],
		"StagedDoneAfterAll":  stagedDoneAfterAll[Tx],
		"StagedAskAgain":      stagedAskAgain[Tx],
		"StagedOverload":      stagedOverload[Tx], "StagedStopped": stagedStopped[Tx],
		"StagedCallAge":    stagedCallAge[Tx],
		"StagedHeartbeat":  stagedHeartbeat[Tx],
		"StagedLife":       stagedLife[Tx],
		"StagedErased":     stagedErased[Tx],
		"StagedPlaces":     stagedPlaces[Tx],
		"StagedHungWorker": stagedHungWorker[Tx],
		"StagedCeilings":   stagedCeilings[Tx], "StagedCeilingOfDuplicates": stagedCeilingOfDuplicates[Tx],
		"StagedCeilingOfStatements": stagedCeilingOfStatements[Tx],
		"StagedCancelBefore":        stagedCancelBefore[Tx],
		"StagedCancelWaiting":       stagedCancelWaiting[Tx],
		"StagedCancelTooLate":       stagedCancelTooLate[Tx],
		"StagedCancelDoubt":         stagedCancelDoubt[Tx],
		"StagedCancelWorker":        stagedCancelWorker[Tx],
		"StagedCancelBeside":        stagedCancelBeside[Tx],
		"OperatorsCancel":           operatorsCancel[Tx],
		"StagedUndoFails":           stagedUndoFails[Tx],
		"OperatorsResolve":          operatorsResolve[Tx],
		"OperatorsIllegal":          operatorsIllegal[Tx],
		"OperatorsList":             operatorsList[Tx],
		"OperatorsRecords":          operatorsRecords[Tx],
		"OperatorsErase":            operatorsErase[Tx],
		"OperatorsResumeAll":        operatorsResumeAll[Tx],
		"StagedOwners":              stagedOwners[Tx],
		"StagedFailing":             stagedFailing[Tx], "StagedUnstored": stagedUnstored[Tx],
		"OperatorsOwners": operatorsOwners[Tx], "OperatorsFilter": operatorsFilter[Tx], "OperatorsBoth": operatorsBoth[Tx],
		"AfterRestore":     afterRestore[Tx],
		"AfterRestoreRows": afterRestoreRows[Tx], "AfterRestoreRaised": afterRestoreRaised[Tx],
		"AfterRestoreRollback": afterRestoreRollback[Tx],
		"AfterRestoreClone":    afterRestoreClone[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// provider honours idempotency keys, as payment providers do.
type provider struct {
	mu    sync.Mutex
	calls map[string]int // by key: the number of calls
	paid  map[string]bool
}

func newProvider() *provider { return &provider{calls: map[string]int{}, paid: map[string]bool{}} }

// pay moves the money once per key.
func (p *provider) pay(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[key]++
	p.paid[key] = true
	return "paid with " + key
}

func (p *provider) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paid[key]
}

// counts returns the number of payments and the number of calls.
func (p *provider) counts() (payments, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.calls {
		calls += n
	}
	return len(p.paid), calls
}

func (p *provider) want(e testing.TB, payments, calls int) {
	e.Helper()
	if n, c := p.counts(); n != payments || c != calls {
		e.Errorf("the provider had %d calls and made %d payments, want %d and %d", c, n, calls, payments)
	}
}

var errTimeout = errors.New("timeout at the provider")

// refund is the staged operation of the suite: it books the effect, calls the provider, and then
// books the end.
type refund[Tx any] struct {
	e        *env[Tx]
	provider *provider
	outside  staged.ExternalCall[string]
	// call is the external call; nil means pay.
	call func(ctx context.Context, key string) (string, error)
	// before and after run within Run, around the external call.
	before, after func(n int) error
	// closed runs after the last step.
	closed func() error
	runs   atomic.Int64 // a completer runs several side by side
}

func (f *refund[Tx]) stages() staged.Workflow[string, string, Tx] {
	return staged.Workflow[string, string, Tx]{Name: "refund", Run: f.run, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}
}

func (f *refund[Tx]) run(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
	n := int(f.runs.Add(1))
	if _, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (string, error) {
		return "booked", f.e.Effect(ctx, tx, key)
	}); err != nil {
		return "", err
	}
	if f.before != nil {
		if err := f.before(n); err != nil {
			return "", err
		}
	}
	step := f.outside
	step.Step = "pay"
	paid, err := staged.Call(ctx, r, step, func(ctx context.Context, key string) (string, error) {
		if f.call != nil {
			return f.call(ctx, key)
		}
		return f.provider.pay(key), nil
	})
	if err != nil {
		return "", err
	}
	if f.after != nil {
		if err := f.after(n); err != nil {
			return "", err
		}
	}
	_, err = staged.Local(ctx, r, "close", func(ctx context.Context, tx Tx) (bool, error) {
		return true, f.e.Effect(ctx, tx, key+" closed")
	})
	if err == nil && f.closed != nil {
		err = f.closed()
	}
	return paid, err
}

func (e *env[Tx]) staged(stages staged.Workflow[string, string, Tx], o idempotency.Options) *staged.Runner[string, string, Tx] {
	e.Helper()
	s, err := staged.New(e.Store(o), stages)
	if err != nil {
		e.Fatal(err)
	}
	return s
}

// stagedRefunds makes the operation with a new provider.
func (e *env[Tx]) stagedRefunds(lease time.Duration) (*refund[Tx], *staged.Runner[string, string, Tx]) {
	f := &refund[Tx]{e: e, provider: newProvider()}
	stages := f.stages()
	stages.Lease = lease
	return f, e.staged(stages, idempotency.Options{})
}

func stagedOp(key string) idempotency.Op { return idempotency.Op{Key: key} }

func ref(key string) staged.Ref { return staged.Ref{Name: "refund", Key: key} }

func (e *env[Tx]) find(key string) (*staged.Operation, error) {
	return operators.New(e.Store(idempotency.Options{})).Show(e.Ctx, ref(key))
}

// show reads an operation as an operator does.
func (e *env[Tx]) show(key string) *staged.Operation {
	e.Helper()
	op, err := operators.New(e.Store(idempotency.Options{})).Show(e.Ctx, ref(key))
	if err != nil {
		e.Fatal(err)
	}
	return op
}

func (e *env[Tx]) wantState(key string, want idempotency.State) *staged.Operation {
	e.Helper()
	op := e.show(key)
	if op.State != want {
		e.Errorf("%s: the operation is %v (%s), want %v", key, op.State, op.Reason, want)
	}
	return op
}

func (e *env[Tx]) wantRefunded(key string) {
	e.Helper()
	e.WantOnce(key)
	e.WantOnce(key + " closed")
	e.wantState(key, idempotency.StateSucceeded)
}

func stagedOnce[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	want := "paid with " + s.ProviderKey(staged.Ref{Key: "a"}, "pay")
	for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed, idempotency.Replayed} {
		if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Outcome != outcome || r.Value != want {
			e.Errorf("%+v, %v, want %v", r, err, outcome)
		}
	}
	e.wantRefunded("a")
	f.provider.want(e, 1, 1)
	if _, err := s.Do(e.Ctx, stagedOp("a"), "another request"); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("another request: %v", err)
	}
	op := e.show("a")
	var steps []string
	for _, st := range op.Steps {
		steps = append(steps, fmt.Sprint(st.Name, " ", st.State, " ", st.Starts))
	}
	slices.Sort(steps)
	if !slices.Equal(steps, []string{"book succeeded 1", "close succeeded 1", "pay succeeded 1"}) || op.Started != 1 || op.Finished != 1 || !op.Staged {
		e.Errorf("%v, %+v", steps, op)
	}
}

// stagedResumes checks that completed steps do not run again, in any worker that continues.
func stagedResumes[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	boom := errors.New("boom")
	f.before = func(n int) error { return map[int]error{1: boom}[n] }
	f.after = func(n int) error { return map[int]error{2: boom}[n] }
	for n := range 2 {
		if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, boom) {
			e.Errorf("attempt %d: %v", n, err)
		}
		if op := e.wantState("a", idempotency.StateWaiting); op.Started != n+1 || op.Finished != n+1 || op.Step != "" || op.Reason != "boom" {
			e.Errorf("after attempt %d: %+v", n, op)
		}
	}
	f.provider.want(e, 1, 1)
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("%v, %v", r, err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")
}

func stagedStampede[Tx any](e *env[Tx]) {
	p := newProvider()
	var mu sync.Mutex
	outcomes := map[idempotency.Outcome]int{}
	var wg sync.WaitGroup
	for range 4 {
		f := &refund[Tx]{e: e, provider: p}
		s := e.staged(f.stages(), idempotency.Options{Wait: time.Minute})
		for range 8 {
			wg.Go(func() {
				r, err := s.Do(e.Ctx, stagedOp("a"), "a")
				if err != nil {
					e.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[r.Outcome]++
			})
		}
	}
	wg.Wait()
	if outcomes[idempotency.Executed] != 1 || outcomes[idempotency.Replayed] != 31 {
		e.Errorf("outcomes %v", outcomes)
	}
	p.want(e, 1, 1)
	e.wantRefunded("a")
}

// stagedParks checks that an external call which is not declared idempotent, and which gave no
// definite answer, is never repeated automatically.
func stagedParks[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	f.call = func(_ context.Context, key string) (string, error) { f.provider.pay(key); return "", errTimeout }
	for range 3 {
		_, err := s.Do(e.Ctx, stagedOp("a"), "a")
		var p *staged.ParkedError
		if !errors.Is(err, idempotency.ErrUnknown) || !errors.As(err, &p) || p.Step != "pay" || p.Reason == "" {
			e.Errorf("got %v", err)
		}
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
		e.Errorf("the completer: %+v, %v", done, err)
	}
	f.provider.want(e, 1, 1)
	e.WantOnce("a")
	op := e.wantState("a", idempotency.StateUnknown)
	if op.Step != "pay" || len(op.Steps) != 2 || op.Started != 1 || op.Finished != 1 {
		e.Errorf("%+v", op)
	}
	if i := slices.IndexFunc(op.Steps, func(st staged.Step) bool { return st.State == staged.Begun }); i < 0 || !f.provider.has(op.Steps[i].ProviderKey) {
		e.Errorf("an operator does not see the provider's key: %+v", op.Steps)
	}
}

// stagedLeaseEndParks lets a worker miss the end of its lease. The next worker parks the
// operation, and the late answer is refused.
func stagedLeaseEndParks[Tx any](e *env[Tx]) {
	p := newProvider()
	end, resume := paused(e, staged.ExternalCall[string]{}, func(key string) (string, error) { return p.pay(key), nil })
	other := &refund[Tx]{e: e, provider: p}
	s := e.staged(other.stages(), idempotency.Options{})
	end()
	var parked *staged.ParkedError
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.As(err, &parked) || parked.Step != "pay" {
		e.Errorf("the next one: %v", err)
	}
	if err := resume(); !errors.Is(err, staged.ErrStale) {
		e.Errorf("the stale worker: %v", err)
	}
	p.want(e, 1, 1)
	e.wantState("a", idempotency.StateUnknown)
	if n := e.Effects("a closed"); n != 0 {
		e.Errorf("%d effects after the call", n)
	}
}

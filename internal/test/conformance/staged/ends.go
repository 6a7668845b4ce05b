package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// stagedAttempts checks that attempts which crash have a separate counter and a bound.
func stagedAttempts[Tx any](e *env[Tx]) {
	const attempts = 3
	runs := 0
	stages := staged.Workflow[string, string, Tx]{
		Name: "refund", Lease: 200 * time.Millisecond, MaxAttempts: attempts,
		Run: func(context.Context, *staged.Run[Tx], string) (string, error) {
			runs++
			panic("poison")
		},
	}
	s := e.staged(stages, idempotency.Options{})
	for n := range attempts {
		func() {
			defer func() {
				if recover() != "poison" {
					e.Errorf("attempt %d: no panic", n)
				}
			}()
			_, err := s.Do(e.Ctx, stagedOp("a"), "a")
			e.Errorf("attempt %d: %v", n, err)
		}()
	}
	var parked *staged.ParkedError
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.As(err, &parked) || parked.Step != "" {
		e.Errorf("got %v", err)
	}
	if op := e.wantState("a", idempotency.StateUnknown); op.Started != attempts || op.Finished != 0 || runs != attempts {
		e.Errorf("%d runs; %d started, %d finished", runs, op.Started, op.Finished)
	}
}

// stagedCaller checks that a caller whose context ends stops the operation between steps, never
// within an external call.
func stagedCaller[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	ctx, cancel := context.WithCancel(e.Ctx)
	f.call = func(ctx context.Context, key string) (string, error) {
		cancel()
		time.Sleep(20 * time.Millisecond)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return f.provider.pay(key), nil
	}
	if _, err := s.Do(ctx, stagedOp("a"), "a"); !errors.Is(err, context.Canceled) {
		e.Errorf("got %v", err)
	}
	f.provider.want(e, 1, 1)
	if op := e.wantState("a", idempotency.StateWaiting); op.Step != "" || op.Due > 0 {
		e.Errorf("%+v", op)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	f.provider.want(e, 1, 1)
	e.wantRefunded("a")

	// Nested on its own key it would wait for itself.
	var nested *staged.Runner[string, string, Tx]
	nested = e.staged(staged.Workflow[string, string, Tx]{Name: "nested", Run: func(ctx context.Context, _ *staged.Run[Tx], _ string) (string, error) {
		r, err := nested.Do(ctx, stagedOp("a"), "a")
		return r.Value, err
	}}, idempotency.Options{})
	if _, err := nested.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, idempotency.ErrNested) {
		e.Errorf("nested: %v", err)
	}
}

func stagedInput[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{MaxResult: 1 << 10})
	run := func(context.Context, *staged.Run[Tx], string) (string, error) { return "", nil }
	type stages = staged.Workflow[string, string, Tx]
	for name, st := range map[string]stages{
		"no name": {Run: run}, "no function": {Name: "x"}, "short lease": {Name: "x", Run: run, Lease: time.Millisecond},
		"long lease": {Name: "x", Run: run, Lease: 25 * time.Hour}, "attempts": {Name: "x", Run: run, MaxAttempts: -1},
		"backoff": {Name: "x", Run: run, Backoff: time.Second, MaxBackoff: time.Millisecond},
		"keys":    {Name: "x", Run: run, KeyFormat: staged.KeyFormat{Length: 10}},
	} {
		if _, err := staged.New(store, st); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	var inRun error
	s, err := staged.New(store, stages{Name: "refund", Backoff: time.Millisecond, MaxAttempts: 1, Run: func(ctx context.Context, r *staged.Run[Tx], what string) (string, error) {
		local := func(step string) error {
			_, err := staged.Local(ctx, r, step, func(context.Context, Tx) (string, error) { return what, nil })
			return err
		}
		_, tooLong := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "x", Lease: 48 * time.Hour}, nil)
		inRun = errors.Join(local("twice"), local("twice"), local(""), tooLong)
		return what, nil
	}})
	if err != nil {
		e.Fatal(err)
	}
	if _, err := s.Do(e.Ctx, idempotency.Op{Key: "a", Name: "other"}, "a"); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("another name: %v", err)
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), string(make([]byte, 1<<10))); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a request of more than MaxResult: %v", err)
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Error(err)
	}
	if joined, ok := inRun.(interface{ Unwrap() []error }); !ok || len(joined.Unwrap()) != 3 {
		e.Errorf("in Run: %v", inRun)
	} else {
		for _, err := range joined.Unwrap() {
			if !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("in Run: %v", err)
			}
		}
	}
}

// stagedCompleter checks that other processes find abandoned work, with pauses, and do not touch
// work that is not theirs.
func stagedCompleter[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	boom := errors.New("boom")
	f.before = func(n int) error { return map[bool]error{true: boom}[n <= 3] }
	for _, key := range []string{"a", "b", "c"} {
		if _, err := s.Do(e.Ctx, stagedOp(key), key); !errors.Is(err, boom) {
			e.Error(err)
		}
	}
	ctx, cancel := context.WithCancelCause(e.Ctx)
	finished := errors.New("finished")
	var sum staged.Completed
	err := s.RunCompleter(ctx, staged.RunOptions{Every: 10 * time.Millisecond, OnPass: func(done staged.Completed, err error) {
		if err != nil {
			e.Error(err)
		}
		sum.Succeeded += done.Succeeded
		if sum.Succeeded >= 3 {
			cancel(finished)
		}
	}})
	if !errors.Is(err, finished) || sum.Succeeded != 3 {
		e.Errorf("%v, %+v", err, sum)
	}
	for _, key := range []string{"a", "b", "c"} {
		e.wantRefunded(key)
	}
	f.provider.want(e, 3, 3)
	if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
		e.Errorf("%+v, %v", done, err)
	}
	if _, err := s.Complete(e.Ctx, staged.RunOptions{Limit: -1}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}
	if err := s.RunCompleter(e.Ctx, staged.RunOptions{Every: -1}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Error(err)
	}

	// Two completers side by side, and an operation of another name.
	slow := e.staged(staged.Workflow[string, string, Tx]{Name: "another", Run: func(context.Context, *staged.Run[Tx], string) (string, error) {
		return "", boom
	}}, idempotency.Options{})
	if _, err := slow.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, boom) {
		e.Error(err)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
		e.Errorf("another operation was touched: %+v, %v", done, err)
	}
}

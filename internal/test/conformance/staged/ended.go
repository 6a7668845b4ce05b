package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// localEndsTheTransaction uses a local step that commits or rolls back its transaction itself, through its
// handle, in SQL or by DDL, and then succeeds or fails. What it did is never done again: if it stands without
// a result, the operation waits for an operator.
func localEndsTheTransaction[Tx any](e *env[Tx]) {
	eachEnd(e, localEnds[Tx])
}

func localEnds[Tx any](e *env[Tx], key string, end func(ctx context.Context, tx Tx), fails error) {
	ran := 0
	s := e.staged(staged.Workflow[string, string, Tx]{
		Name: "refund", Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
			return staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (string, error) {
				if err := e.Effect(ctx, tx, key); err != nil {
					return "", err
				}
				if ran++; ran > 1 {
					return "again", nil
				}
				end(ctx, tx)
				return "", fails
			})
		},
	}, idempotency.Options{})
	_, first := s.Do(e.Ctx, stagedOp(key), key)
	stood := e.Effects(key) == 1
	var value string
	for range 20 {
		time.Sleep(5 * time.Millisecond)
		r, err := s.Do(e.Ctx, stagedOp(key), key)
		if value = r.Value; err == nil || errors.Is(err, idempotency.ErrUnknown) {
			break
		}
	}
	e.WantOnce(key)
	op := e.show(key)
	switch {
	case op.State == idempotency.StateUnknown:
		if !stood || first == nil || op.Step != "book" {
			e.Errorf("it %s: nothing stands, but the operation is unknown at %q (%s); before: %v", key, op.Step, op.Reason, first)
		}
		if err := operators.New(e.Store(idempotency.Options{})).Resolve(e.Ctx, ref(key), operators.Resolution{Step: staged.StepDone, StepResult: "found"}, who()); err != nil {
			e.Errorf("it %s: %v", key, err)
		}
		if r, err := s.Do(e.Ctx, stagedOp(key), key); err != nil || r.Value != "found" {
			e.Errorf("it %s, and an operator has resolved the step: %v, %v", key, r, err)
		}
		e.WantOnce(key)
	case op.State != idempotency.StateSucceeded, !stood && value != "again":
		e.Errorf("it %s: the operation is %v and its value %q; before: %v", key, op.State, value, first)
	}
}

// eachEnd calls test with each way in which a function may end its transaction itself, and what it returns then.
func eachEnd[Tx any](e *env[Tx], test func(e *env[Tx], key string, end func(ctx context.Context, tx Tx), fails error)) {
	texts := func(texts ...string) func(ctx context.Context, tx Tx) {
		return func(ctx context.Context, tx Tx) {
			for _, text := range texts {
				_, _ = e.Exec(ctx, tx, text)
			}
		}
	}
	ends := map[string]func(ctx context.Context, tx Tx){
		"commits":                   func(ctx context.Context, tx Tx) { _ = e.End(ctx, tx, true) },
		"rolls back":                func(ctx context.Context, tx Tx) { _ = e.End(ctx, tx, false) },
		"commits in SQL":            texts(`COMMIT`),
		"commits in SQL and begins": texts(`COMMIT`, `BEGIN`),
		"changes a table":           texts(`CREATE TABLE surprise (n INT)`),
	}
	for how, end := range ends {
		test(e, how, end, nil)
		test(e, how+", fails", end, errors.New("boom"))
	}
}

// undoEndsTheTransaction uses a Workflow.Undo that ends the transaction of Cancel itself. What it has taken
// back is not taken back again.
func undoEndsTheTransaction[Tx any](e *env[Tx]) {
	eachEnd(e, undoEnds[Tx])
}

func undoEnds[Tx any](e *env[Tx], key string, end func(ctx context.Context, tx Tx), fails error) {
	ran := 0
	s := e.staged(staged.Workflow[string, string, Tx]{
		Name: "refund", Backoff: time.Hour, MaxBackoff: time.Hour,
		Run: func(context.Context, *staged.Run[Tx], string) (string, error) { return "", errors.New("not now") },
		Undo: func(ctx context.Context, tx Tx, key string, _ staged.Operation) error {
			if err := e.Effect(ctx, tx, key+" undone"); err != nil {
				return err
			}
			if ran++; ran > 1 {
				return nil
			}
			end(ctx, tx)
			return fails
		},
	}, idempotency.Options{})
	if _, err := s.Do(e.Ctx, stagedOp(key), key); err == nil {
		e.Fatalf("%s: done", key)
	}
	_, first := s.Cancel(e.Ctx, stagedOp(key), "a test")
	stood := e.Effects(key+" undone") == 1
	if _, err := s.Cancel(e.Ctx, stagedOp(key), "a test"); err != nil {
		e.Errorf("it %s: %v; before: %v", key, err, first)
	}
	e.WantOnce(key + " undone")
	if op := e.show(key); op.State != idempotency.StateRejected || stood && ran != 1 {
		e.Errorf("it %s: the operation is %v, and Undo ran %d times; before: %v", key, op.State, ran, first)
	}
}

// localMisbehaves is FunctionMisbehaves of Do for the function of a local step.
func localMisbehaves[Tx any](e *env[Tx]) {
	for seed := range uint64(conformance.Misbehaved) {
		key := fmt.Sprintf("Local %d", seed)
		m, ran := conformance.Misbehaving(&e.Env, key, seed), 0
		ctx, cancel := context.WithCancel(e.Ctx)
		s := e.staged(staged.Workflow[string, string, Tx]{
			Name: "refund", Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond, Lease: 200 * time.Millisecond,
			Run: func(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
				return staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (string, error) {
					if ran++; ran > 1 {
						return "well", e.Effect(ctx, tx, key)
					}
					return m.Function(cancel)(ctx, tx)
				})
			},
		}, idempotency.Options{})
		first := conformance.Recovered(func() error {
			_, err := s.Do(ctx, stagedOp(key), key)
			return err
		})
		cancel()
		stood := e.Effects(key)
		var r idempotency.Result[string]
		var second error
		var rej *idempotency.Rejection
		e.Eventually("the operation ends, or waits for an operator", func() bool {
			second = conformance.Recovered(func() (err error) { // the first attempt may have ended before its function
				r, err = s.Do(e.Ctx, stagedOp(key), key)
				return err
			})
			return second == nil || errors.As(second, &rej) || errors.Is(second, idempotency.ErrUnknown)
		})
		says := fmt.Sprintf("%v: it returned %v and left %d effects; then %v, %v, and %d effects", m, first, stood, r, second, e.Effects(key))
		switch now := e.Effects(key); {
		case now > 1 || stood == 1 && ran > 1:
			e.Errorf("twice: %s", says)
		case second == nil && (r.Value == "well") != (ran > 1), second == nil && r.Value == "misbehaved" && m.Did != (now == 1), second == nil && r.Value == "well" && now != 1:
			e.Errorf("it was done: %s", says)
		case errors.As(second, &rej) && !errors.Is(second, idempotency.ErrUnknown) && now != 0:
			e.Errorf("it stands and is rejected: %s", says)
		}
	}
}

package inner

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// call is a call of the public API that runs a user's function.
type call[Tx any] struct {
	// passes: the call has no such outcomes, and returns the function's error as it is.
	passes bool
	// run makes the call. Its function has one effect of key, and returns fail.
	run func(e *conformance.Env[Tx], key string, fail error) error
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Names are the names of the calls.
func Names() []string { return slices.Sorted(maps.Keys(calls[*sql.Tx]())) }

// calls are the exported functions and methods that run a user's function.
func calls[Tx any]() map[string]call[Tx] {
	type env = *conformance.Env[Tx]
	effect := func(e env, key string, fail error) func(context.Context, Tx) error {
		return func(ctx context.Context, tx Tx) error { return errors.Join(e.Effect(ctx, tx, key), fail) }
	}
	alone := func(e env, key string, fail error) error { // in a function that has no transaction
		if fail != nil {
			return fail
		}
		return e.DB.InTx(e.Ctx, effect(e, key, nil))
	}
	lease := func(e env, key string, fail error) func(context.Context, *sqllock.Lease) error {
		return func(context.Context, *sqllock.Lease) error { return alone(e, key, fail) }
	}
	inTx := func(e env, f func(tx Tx) error) error {
		tx := e.BeginTx(sql.LevelDefault)
		if err := f(tx); err != nil {
			return err // tx is rolled back
		}
		e.EndTx(tx, true)
		return nil
	}
	return map[string]call[Tx]{
		"idempotency.Do": {run: func(e env, key string, fail error) error {
			_, err := idempotency.Do(e.Ctx, e.Store(idempotency.Options{}), conformance.Op(key), func(ctx context.Context, tx Tx) (int, error) { return 0, effect(e, key, fail)(ctx, tx) })
			return err
		}},
		"idempotency.DoTx": {run: func(e env, key string, fail error) error {
			return inTx(e, func(tx Tx) error {
				_, err := idempotency.DoTx(e.Ctx, e.Store(idempotency.Options{}), tx, conformance.Op(key), func(ctx context.Context, tx Tx) (int, error) { return 0, effect(e, key, fail)(ctx, tx) })
				return err
			})
		}},
		"inbox.Inbox.Process": {run: func(e env, key string, fail error) error {
			in, err := inbox.New(e.Store(idempotency.Options{}), "ledger")
			e.Check(err)
			_, err = in.Process(e.Ctx, inbox.Message{ID: key}, effect(e, key, fail))
			disposed(e, key, fail, err)
			return err
		}},
		"inbox.Inbox.ProcessTx": {run: func(e env, key string, fail error) error {
			in, err := inbox.New(e.Store(idempotency.Options{}), "ledger")
			e.Check(err)
			err = inTx(e, func(tx Tx) error {
				_, err := in.ProcessTx(e.Ctx, tx, inbox.Message{ID: key}, effect(e, key, fail))
				return err
			})
			disposed(e, key, fail, err)
			return err
		}},
		"cron.Once": {run: func(e env, key string, fail error) error {
			_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), cron.Job{Name: key, Schedule: epoch}, func(ctx context.Context, tx Tx, _ time.Time) error { return effect(e, key, fail)(ctx, tx) })
			return err
		}},
		"cron.Run": {run: func(e env, key string, fail error) error {
			log := &lastError{Handler: slog.DiscardHandler}
			ctx, cancel := context.WithCancel(e.Ctx)
			defer cancel()
			_ = cron.Run(ctx, e.Store(idempotency.Options{}), cron.Job{Name: key, Schedule: epoch}, func(ctx context.Context, tx Tx, _ time.Time) error {
				if log.err != nil || fail == nil {
					cancel() // it was told, or ends now
				}
				return effect(e, key, fail)(context.WithoutCancel(ctx), tx)
			}, cron.RunOptions{Logger: slog.New(log)})
			if fail != nil {
				return log.err
			}
			_, _, err := cron.Once(e.Ctx, e.Store(idempotency.Options{}), cron.Job{Name: key, Schedule: epoch}, func(ctx context.Context, tx Tx, _ time.Time) error { return effect(e, key, nil)(ctx, tx) })
			return err
		}},
		"idemhttp.Middleware.Handler": {run: func(e env, key string, fail error) error {
			log := &lastError{Handler: slog.DiscardHandler}
			m, err := idemhttp.New(e.Store(idempotency.Options{}), idemhttp.Operation("refund"), idemhttp.Options{Logger: slog.New(log)})
			e.Check(err)
			r := httptest.NewRequestWithContext(e.Ctx, http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", strings.ReplaceAll(key, " ", "-"))
			w := httptest.NewRecorder()
			m.Handler(func(_ http.ResponseWriter, r *http.Request, tx Tx) error {
				return effect(e, key, fail)(r.Context(), tx)
			}).ServeHTTP(w, r)
			if fail != nil && w.Code != http.StatusInternalServerError && w.Code != http.StatusServiceUnavailable {
				e.Errorf("%s: %d %s", key, w.Code, w.Body)
			}
			return log.err
		}},
		"businessrow.Table.Do": {run: func(e env, key string, fail error) error {
			_, err := e.Refunds().Do(e.Ctx, conformance.Refund{No: key, Amount: 1}, effect(e, key, fail))
			return err
		}},
		"staged.Local": {run: func(e env, key string, fail error) error {
			return workflow(e, key, fail, func(ctx context.Context, r *staged.Run[Tx]) error {
				_, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (int, error) { return 0, effect(e, key, fail)(ctx, tx) })
				return err
			})
		}},
		"staged.Call": {run: func(e env, key string, fail error) error {
			err := workflow(e, key, fail, func(ctx context.Context, r *staged.Run[Tx]) error {
				_, err := staged.Call(ctx, r, staged.ExternalCall[int]{Step: "pay", OnLeaseEnd: staged.TakeOver}, func(context.Context, string) (int, error) { return 0, alone(e, key, fail) })
				return err
			})
			if step := (*staged.StepError)(nil); errors.As(err, &step) {
				return step.Err // the step is unknown, after any error
			}
			return err
		}},
		"staged.Runner.Do": {run: func(e env, key string, fail error) error {
			return workflow(e, key, fail, func(context.Context, *staged.Run[Tx]) error { return alone(e, key, fail) })
		}},
		"staged.HandleEvent": {run: func(e env, key string, fail error) error {
			s := e.Store(idempotency.Options{})
			op := conformance.Op(key)
			r, err := staged.New(s, staged.Workflow[string, int, Tx]{Name: "event", Run: func(context.Context, *staged.Run[Tx], string) (int, error) { return 0, nil }})
			e.Check(err)
			op.Name, op.Request = "event", nil
			_, err = r.Do(e.Ctx, op, "")
			e.Check(err)
			_, err = staged.HandleEvent(e.Ctx, s, staged.ProviderEvent{Ref: staged.Ref{Owner: op.Owner, Name: op.Name, Key: op.Key}, ID: key}, func(ctx context.Context, tx Tx, _ staged.Operation) error { return effect(e, key, fail)(ctx, tx) })
			return err
		}},
		"outbox.NewRelay": {passes: true, run: func(e env, key string, fail error) error {
			box, err := outbox.New(e.Ctx, e.DB, "refunds")
			e.Check(err)
			if fail != nil {
				e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return box.Write(ctx, tx, outbox.Message{Key: key}) }))
			}
			relay, err := outbox.NewRelay(box, func(context.Context, outbox.Delivery) error { return alone(e, key, fail) }, outbox.Options{Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Logger: discard()})
			e.Check(err)
			e.Eventually("the message is published, or failed", func() bool {
				_, err := relay.Pass(e.Ctx)
				e.Check(err)
				if fail == nil {
					return e.Effects(key) > 0
				}
				return true
			})
			if s, err := box.Stats(e.Ctx); err != nil || s.Dead > 0 {
				e.Errorf("%s: %+v, %v", key, s, err)
			}
			return fail
		}},
		"holdfast.DB.InTx": {passes: true, run: func(e env, key string, fail error) error { return e.DB.InTx(e.Ctx, effect(e, key, fail)) }},
		"optimistic.Retry": {passes: true, run: func(e env, key string, fail error) error {
			runs := 0
			err := optimistic.Retry(e.Ctx, e.DB, func(ctx context.Context, tx Tx) error {
				runs++
				return effect(e, key, fail)(ctx, tx)
			})
			if runs > 1 && !e.DB.Retryable(fail) {
				e.Errorf("%s: the function ran %d times", key, runs)
			}
			return err
		}},
		"sqllock.Locker.Do": {passes: true, run: func(e env, key string, fail error) error { return e.Locker().Do(e.Ctx, key, lease(e, key, fail)) }},
		"sqllock.Locker.InTx": {passes: true, run: func(e env, key string, fail error) error {
			l := e.Locker()
			return l.Do(e.Ctx, key, func(_ context.Context, lease *sqllock.Lease) error {
				return l.InTx(e.Ctx, lease, effect(e, key, fail))
			})
		}},
		"election.Election.Run": {passes: true, run: func(e env, key string, fail error) error {
			leads := 0
			err := election.New(e.Locker(), key).Run(e.Ctx, nil, func(context.Context, *election.Leader) error {
				if leads++; leads > 1 {
					return nil // it leads again after the error
				}
				return alone(e, key, fail)
			})
			if err == nil && fail != nil && leads == 2 {
				return fail
			}
			return err
		}},
		"fairlock.Locker.Do": {passes: true, run: func(e env, key string, fail error) error {
			return fairlock.New(e.Locker()).Do(e.Ctx, key, lease(e, key, fail))
		}},
		"fairlock.Locker.DoShared": {passes: true, run: func(e env, key string, fail error) error {
			return fairlock.New(e.Locker()).DoShared(e.Ctx, key, lease(e, key, fail))
		}},
		"fairlock.Semaphore.Do": {passes: true, run: func(e env, key string, fail error) error {
			s, err := fairlock.New(e.Locker()).Semaphore(key, 2)
			e.Check(err)
			return s.Do(e.Ctx, 1, lease(e, key, fail))
		}},
	}
}

// workflow runs a staged operation whose Run is f.
func workflow[Tx any](e *conformance.Env[Tx], key string, fail error, f func(ctx context.Context, r *staged.Run[Tx]) error) error {
	e.Helper()
	r, err := staged.New(e.Store(idempotency.Options{}), staged.Workflow[string, int, Tx]{
		Name: "refund", Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (int, error) { return 0, f(ctx, r) },
	})
	e.Check(err)
	op := conformance.Op(key)
	op.Request = nil
	_, err = r.Do(e.Ctx, op, "")
	if o, state := r.Lookup(e.Ctx, op); fail != nil && (state != nil || o.State != idempotency.StateWaiting) {
		e.Errorf("%s: %v, %v: the operation is not tried again", key, o.State, state)
	}
	return err
}

// disposed fails if a message would be lost.
func disposed[Tx any](e *conformance.Env[Tx], key string, fail, err error) {
	e.Helper()
	if d := inbox.DispositionOf(err); fail != nil && d != inbox.Redeliver {
		e.Errorf("%s: %v (%v)", key, d, err)
	}
}

// epoch has one tick.
func epoch(now time.Time) (last, next time.Time) { return time.Unix(0, 0), now.Add(time.Hour) }

// lastError keeps the error of the last record.
type lastError struct {
	slog.Handler
	err error
}

func (l *lastError) Enabled(context.Context, slog.Level) bool { return true }

func (l *lastError) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is {
			l.err = err
		}
		return true
	})
	return nil
}

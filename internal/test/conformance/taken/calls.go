package taken

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// call is a call of the public API that waits, or works in the background.
type call[Tx any] struct {
	// table has what it waits for or works on, and column is one that it needs.
	table, column string
	// start prepares the call, and returns it. It says e.ready when it waits, and its error, or e.tell, is
	// what it says.
	start func(e *env[Tx]) func(ctx context.Context) error
}

// lease outlasts what a busy machine does to its renewals, and no more: what its call says comes when it ends.
const lease = 15 * time.Second

// tickets is how many calls wait in the table of tickets.
const tickets = 3

// Names are the names of the calls.
func Names() []string { return slices.Sorted(maps.Keys(calls[*sql.Tx]())) }

// calls are all of them. Calls that wait within a statement (for a row lock, or for a claim that another
// transaction has not committed) have no loop: the server answers their statement, or ends it.
func calls[Tx any]() map[string]call[Tx] {
	type test = *env[Tx]
	held := func(e test, lease *sqllock.Lease, err error) {
		e.Check(err)
		e.free = func() { e.MustRelease(lease) }
	}
	// waits is a call that waits for a lock that theirs has.
	waits := func(acquire func(ctx context.Context, l *sqllock.Locker[Tx], e test) (*sqllock.Lease, error), wait func(ctx context.Context, l *sqllock.Locker[Tx], e test) error) func(e test) func(context.Context) error {
		return func(e test) func(context.Context) error {
			lease, err := acquire(e.Ctx, e.theirs, e)
			held(e, lease, err)
			return func(ctx context.Context) error {
				e.ready()
				return wait(ctx, e.mine, e)
			}
		}
	}
	leased := func(ctx context.Context, l *sqllock.Locker[Tx], e test) (*sqllock.Lease, error) {
		return l.Acquire(ctx, e.call)
	}
	fair := func(ctx context.Context, l *sqllock.Locker[Tx], e test) (*sqllock.Lease, error) {
		return fairlock.New(l).Acquire(ctx, e.call)
	}
	shared := func(ctx context.Context, l *sqllock.Locker[Tx], e test) (*sqllock.Lease, error) {
		return fairlock.New(l).AcquireShared(ctx, e.call)
	}
	permit := func(ctx context.Context, l *sqllock.Locker[Tx], e test) (*sqllock.Lease, error) {
		s, err := fairlock.New(l).Semaphore(e.call, 1)
		if err != nil {
			return nil, err
		}
		return s.Acquire(ctx, 1)
	}
	failing := func(acquire func(ctx context.Context, l *sqllock.Locker[Tx], e test) (*sqllock.Lease, error)) func(ctx context.Context, l *sqllock.Locker[Tx], e test) error {
		return func(ctx context.Context, l *sqllock.Locker[Tx], e test) error {
			_, err := acquire(ctx, l, e)
			return err
		}
	}
	// renewed is the holder of a lease.
	renewed := func(acquire func(e test) (*sqllock.Lease, error)) func(e test) func(context.Context) error {
		return func(e test) func(context.Context) error {
			l, err := acquire(e)
			held(e, l, err)
			e.free = func() { _ = l.Release(e.Ctx) } // it is lost
			return func(ctx context.Context) error {
				e.ready()
				select {
				case <-l.Context().Done():
				case <-ctx.Done():
				}
				return context.Cause(l.Context())
			}
		}
	}
	ttl := sqllock.AcquireOptions{TTL: lease}
	locks := call[Tx]{table: "holdfast_locks", column: "expires_at"}
	queued := call[Tx]{table: "holdfast_tickets", column: "attempt"}
	records := call[Tx]{table: "holdfast_records", column: "codec"}
	stages := call[Tx]{table: "holdfast_staged", column: "key_hash"}
	of := func(c call[Tx], start func(e test) func(context.Context) error) call[Tx] {
		c.start = start
		return c
	}
	return map[string]call[Tx]{
		"sqllock.Locker.Acquire": of(locks, waits(leased, failing(leased))),
		"sqllock.Lease, renewed": of(locks, renewed(func(e test) (*sqllock.Lease, error) { return e.mine.Acquire(e.Ctx, e.call, ttl) })),
		"election.Election.Campaign": of(locks, waits(leased, func(ctx context.Context, l *sqllock.Locker[Tx], e test) error {
			_, err := election.New(l, e.call).Campaign(ctx, []byte("10.0.0.7"))
			return err
		})),
		"election.Election.Observe": of(locks, waits(leased, func(ctx context.Context, l *sqllock.Locker[Tx], e test) (err error) {
			for _, err = range election.New(l, e.call).Observe(ctx) {
				e.tell(err)
			}
			return err
		})),
		"fairlock.Locker.Acquire":       of(queued, waits(fair, failing(fair))),
		"fairlock.Locker.AcquireShared": of(queued, waits(fair, failing(shared))),
		"fairlock.Semaphore.Acquire":    of(queued, waits(permit, failing(permit))),
		"fairlock lease, renewed":       of(queued, renewed(func(e test) (*sqllock.Lease, error) { return fairlock.New(e.mine).Acquire(e.Ctx, e.call, ttl) })),
		"register.Register.Watch": {table: "holdfast_registers", column: "revision", start: func(e test) func(context.Context) error {
			values, err := register.New(e.Ctx, e.DB)
			e.Check(err)
			_, err = values.Create(e.Ctx, e.call, []byte("1"))
			e.Check(err)
			return func(ctx context.Context) error {
				for _, err := range values.Watch(ctx, e.call, register.WatchOptions{Interval: 10 * time.Millisecond}) {
					e.tell(err)
					e.ready()
				}
				return nil
			}
		}},
		"idempotency.Lookup": of(records, func(e test) func(context.Context) error {
			s, op := e.Store(idempotency.Options{}), conformance.Op(e.call)
			op.Wait = time.Hour
			return func(ctx context.Context) error {
				e.ready()
				_, err := idempotency.Lookup[string](ctx, s, op)
				return err
			}
		}),
		"staged.Runner.Do": of(stages, func(e test) func(context.Context) error {
			begun, free, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			has := runner(e, e.others, time.Hour, func(context.Context) error { close(begun); <-free; return nil })
			go func() {
				_, err := has.Do(e.Ctx, idempotency.Op{Key: e.call}, "")
				ended <- err
			}()
			await(e.Env, e.call+": it is in progress elsewhere", begun)
			e.free = func() { close(free); e.Check(<-ended) }
			r := runner(e, e.Env, time.Hour, func(context.Context) error { return errors.New("it runs here, too") })
			return func(ctx context.Context) error {
				e.ready()
				_, err := r.Do(ctx, idempotency.Op{Key: e.call, Wait: time.Hour}, "")
				return err
			}
		}),
		"staged.Call, renewed": of(stages, func(e test) func(context.Context) error {
			r := runner(e, e.Env, lease, func(ctx context.Context) error {
				e.ready()
				<-ctx.Done()
				e.tell(context.Cause(ctx))
				return context.Cause(ctx)
			})
			return func(ctx context.Context) error {
				_, err := r.Do(ctx, idempotency.Op{Key: e.call}, "")
				return err
			}
		}),
		"staged.Runner.RunCompleter": of(stages, func(e test) func(context.Context) error {
			r := runner(e, e.Env, time.Hour, func(context.Context) error { return nil })
			return func(ctx context.Context) error {
				return r.RunCompleter(ctx, staged.RunOptions{Every: 10 * time.Millisecond, OnPass: func(_ staged.Completed, err error) { e.tell(err); e.ready() }})
			}
		}),
		"outbox.Relay.Run": {table: "holdfast_outbox", column: "message_key", start: func(e test) func(context.Context) error {
			box, err := outbox.New(e.Ctx, e.DB, "refunds")
			e.Check(err)
			e.Check(e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return box.Write(ctx, tx, outbox.Message{Key: e.call}) }))
			publish := func(context.Context, outbox.Delivery) error { e.ready(); return nil }
			relay, err := outbox.NewRelay(box, publish, outbox.Options{Poll: time.Millisecond, Logger: slog.New(logged{tell: e.tell})})
			e.Check(err)
			return relay.Run
		}},
		"cron.Run": of(records, func(e test) func(context.Context) error {
			job := cron.Job{Name: "close", Schedule: cron.Every(50*time.Millisecond, 0)}
			s := e.Store(idempotency.Options{})
			return func(ctx context.Context) error {
				return cron.Run(ctx, s, job, func(context.Context, Tx, time.Time) error { e.ready(); return nil }, cron.RunOptions{Logger: slog.New(logged{tell: e.tell})})
			}
		}),
		"reaper.Reaper.Run": of(records, func(e test) func(context.Context) error {
			r, err := reaper.New(e.Ctx, e.DB)
			e.Check(err)
			return func(ctx context.Context) error {
				return r.Run(ctx, reaper.RunOptions{Every: 10 * time.Millisecond, OnPass: func(_ reaper.Report, err error) { e.tell(err); e.ready() }})
			}
		}),
	}
}

// runner has operations of one call.
func runner[Tx any](e *env[Tx], of *conformance.Env[Tx], lease time.Duration, pay func(ctx context.Context) error) *staged.Runner[string, string, Tx] {
	r, err := staged.New(of.Store(idempotency.Options{}), staged.Workflow[string, string, Tx]{Name: e.call, Lease: lease, Run: func(ctx context.Context, r *staged.Run[Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver, Timeout: time.Hour}, func(ctx context.Context, _ string) (string, error) { return "", pay(ctx) })
	}})
	e.Check(err)
	return r
}

// logged tells the errors that are logged.
type logged struct {
	slog.Handler

	tell func(error)
}

func (logged) Enabled(context.Context, slog.Level) bool { return true }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if err, is := a.Value.Any().(error); is {
			l.tell(err)
		}
		return true
	})
	return nil
}

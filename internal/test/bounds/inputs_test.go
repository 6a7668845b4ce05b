package bounds_test

import (
	"context"
	"database/sql"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/doctor"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

type (
	db    = *holdfast.DB[*sql.Tx]
	store = *idempotency.Store[*sql.Tx]
)

// inputs is the table of the bounds, by the names of fields and parameters. What a call would begin ends
// at once, because its context has ended; a call that changes something has its own key.
func inputs(t *testing.T) map[string]bound { //nolint:funlen // one table
	t.Helper()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	e := env{t.Context(), kit.DB, must(idempotency.New(t.Context(), kit.DB))}
	must(kit.Pool.ExecContext(e, `CREATE TABLE shelves (id TEXT NOT NULL PRIMARY KEY COLLATE BINARY, expires_at INTEGER)`))
	ended, end := context.WithCancel(e.Context)
	end()
	locks := must(sqllock.New(e, e.db))
	t.Cleanup(func() { _ = locks.Close(context.WithoutCancel(e)) })
	semaphores := fairlock.New(locks)
	keys, shelves := must(rowlock.New(e, e.db)), must(rowlock.NewTable[shelf](e, e.db, holdfast.TableSpec{Table: "shelves", Key: []string{"id"}}))
	capacity := must(limits.New(e, e.db, "capacity"))
	must(capacity.Set(e, "a", 1<<40))
	values := must(register.New(e, e.db))
	box := must(outbox.New(e, e.db, "mail"))
	sweeper := must(reaper.New(e, e.db))
	op := func(o idempotency.Op) idempotency.Op {
		o.Name, o.Key, o.NoFingerprint = "refund", holdfastKey(), true
		return o
	}
	do := func(o idempotency.Op) error {
		_, err := idempotency.Do(e, e.store, op(o), func(context.Context, *sql.Tx) (int, error) { return 0, nil })
		return err
	}
	newStore := func(o idempotency.Options) error {
		return second(idempotency.New(e, e.db, o))
	}
	inTx := func(o holdfast.TxOptions) error {
		return e.db.InTx(e, func(context.Context, *sql.Tx) error { return nil }, o)
	}
	retry := func(o optimistic.RetryOptions) error {
		return optimistic.Retry(e, e.db, func(context.Context, *sql.Tx) error { return nil }, o)
	}
	row := func(o businessrow.Options) error {
		return second(businessrow.New[shelf](e, e.db, holdfast.TableSpec{Table: "shelves", Key: []string{"id"}}, o))
	}
	web := func(o idemhttp.Options) error {
		return second(idemhttp.New(e.store, idemhttp.Operation("refund"), o))
	}
	trip := func(tr idemclient.Transport) error {
		tr.Base = answers{}
		resp, err := tr.RoundTrip(must(http.NewRequestWithContext(e, http.MethodPost, "http://localhost/", http.NoBody)))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	relay := func(o outbox.Options) error {
		return second(outbox.NewRelay(box, func(context.Context, outbox.Delivery) error { return nil }, o))
	}
	runner := func(w staged.Workflow[string, string, *sql.Tx]) (*staged.Runner[string, string, *sql.Tx], error) {
		w.Name = "refund"
		if w.Run == nil {
			w.Run = func(context.Context, *staged.Run[*sql.Tx], string) (string, error) { return "", nil }
		}
		return staged.New(e.store, w)
	}
	idle := must(runner(staged.Workflow[string, string, *sql.Tx]{}))
	call := func(c staged.ExternalCall[string], answer error) error {
		c.Step, c.OnLeaseEnd = "pay", staged.TakeOver
		r := must(runner(staged.Workflow[string, string, *sql.Tx]{Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
			return staged.Call(ctx, r, c, func(context.Context, string) (string, error) { return "", answer })
		}}))
		return second(r.Do(e, idempotency.Op{Key: holdfastKey()}, ""))
	}
	sweep := func(o reaper.Options) error { return second(reaper.New(e, e.db, o)) }
	list := func(f operators.Filter) error { return first(operators.New(e.store).List(e, f)) }
	lease := func(o sqllock.Options) error {
		l, err := sqllock.New(e, e.db, o)
		if err == nil {
			_ = l.Close(e)
		}
		return err
	}
	tick := func(every, offset time.Duration) error {
		_, _, err := cron.Once(e, e.store, cron.Job{Name: "close", Schedule: cron.Every(every, offset)}, func(context.Context, *sql.Tx, time.Time) error { return nil })
		return err
	}

	return map[string]bound{
		"holdfast.Options.UpdateGrace": span(time.Hour, 90*24*time.Hour, func(d time.Duration) error {
			return second(holdfastsql.Open(e, kit.Pool, holdfast.Options{UpdateGrace: d}))
		}, 0),
		"holdfast.TxOptions.LockTimeout": span(ms, time.Hour, func(d time.Duration) error { return inTx(holdfast.TxOptions{LockTimeout: d}) }, 0),
		"holdfast.TxOptions.Attempts":    size(1, 1e6, func(n int) error { return inTx(holdfast.TxOptions{Attempts: n}) }, 0),

		"idempotency.Options.Wait":         span(ms, 366*day, func(d time.Duration) error { return newStore(idempotency.Options{Wait: d}) }, 0),
		"idempotency.Options.ResultTTL":    span(50*ms, century, func(d time.Duration) error { return newStore(idempotency.Options{ResultTTL: d}) }, 0, int64(holdfast.Forever)),
		"idempotency.Options.KeyTTL":       span(50*ms, century, func(d time.Duration) error { return newStore(idempotency.Options{KeyTTL: d, ResultTTL: 50 * ms}) }, 0, int64(holdfast.Forever)),
		"idempotency.Options.RejectionTTL": span(50*ms, century, func(d time.Duration) error { return newStore(idempotency.Options{RejectionTTL: d}) }, 0, int64(holdfast.Forever)),
		"idempotency.Options.MaxNew":       size(1, 1e12, func(n int) error { return newStore(idempotency.Options{MaxNew: n}) }, 0, int64(holdfast.Unlimited)),
		"idempotency.Options.MaxRecords":   size(1, 1e12, func(n int) error { return newStore(idempotency.Options{MaxRecords: n}) }, 0, int64(holdfast.Unlimited)),
		"idempotency.Options.MaxResult":    size(1<<10, 15<<20, func(n int) error { return newStore(idempotency.Options{MaxResult: n}) }, 0),
		"idempotency.Options.LockTimeout":  span(ms, time.Hour, func(d time.Duration) error { return newStore(idempotency.Options{LockTimeout: d}) }, 0),
		"idempotency.Options.Attempts":     size(1, 1e6, func(n int) error { return newStore(idempotency.Options{Attempts: n}) }, 0),
		"inbox.Message.Wait": span(ms, 366*day, func(d time.Duration) error {
			return second(must(inbox.New(e.store, "refunds")).Process(e, inbox.Message{ID: holdfastKey(), Wait: d}, func(context.Context, *sql.Tx) error { return nil }))
		}, 0, int64(holdfast.NoWait)),
		"idempotency.Op.Wait": span(ms, 366*day, func(d time.Duration) error { return do(idempotency.Op{Wait: d}) }, 0, int64(holdfast.NoWait)),
		"idempotency.Similar.Window": span(50*ms, 366*day, func(d time.Duration) error {
			return do(idempotency.Op{Similar: &idempotency.Similar{By: []string{holdfastKey()}, Window: d}})
		}),

		"businessrow.Options.Wait":        span(ms, 366*day, func(d time.Duration) error { return row(businessrow.Options{Wait: d}) }, 0),
		"businessrow.Options.LockTimeout": span(ms, time.Hour, func(d time.Duration) error { return row(businessrow.Options{LockTimeout: d}) }, 0),
		"businessrow.Options.Attempts":    size(1, 1e6, func(n int) error { return row(businessrow.Options{Attempts: n}) }, 0),

		"cron.Every(d)":      span(50*ms, century, func(d time.Duration) error { return tick(d, 0) }),
		"cron.Every(offset)": span(ms, century, func(d time.Duration) error { return tick(time.Hour, d) }, 0, int64(-5*time.Hour)),

		"idemhttp.Options.MaxKey":       size(8, 1024, func(n int) error { return web(idemhttp.Options{MaxKey: n}) }, 0),
		"idemhttp.Options.MaxBody":      size(1<<10, 1<<30, func(n int) error { return web(idemhttp.Options{MaxBody: int64(n)}) }, 0),
		"idemhttp.Options.MaxHeld":      size(1<<10, 1<<40, func(n int) error { return web(idemhttp.Options{MaxHeld: int64(n)}) }, 0),
		"idemhttp.Options.Wait":         span(ms, 366*day, func(d time.Duration) error { return web(idemhttp.Options{Wait: d}) }, 0, int64(holdfast.NoWait)),
		"idemhttp.Options.StartWait":    span(ms, day, func(d time.Duration) error { return web(idemhttp.Options{StartWait: d}) }, 0),
		"idemhttp.Options.MaxStartWait": span(ms, day, func(d time.Duration) error { return web(idemhttp.Options{MaxStartWait: d}) }, 0),
		"idemclient.Transport.MaxPause": span(ms, day, func(d time.Duration) error { return trip(idemclient.Transport{MaxPause: d}) }, 0),
		"idemclient.Transport.Attempts": size(1, 1e6, func(n int) error { return trip(idemclient.Transport{Attempts: n}) }, 0),

		"operators.Filter.Overdue": span(ms, century, func(d time.Duration) error { return list(operators.Filter{Overdue: d}) }, 0),
		"operators.ResumeOptions.Limit": size(1, 1e4, func(n int) error {
			return second(operators.New(e.store).ResumeAll(e, operators.Filter{}, holdfast.Actor{By: "ana", Reason: "test"}, operators.ResumeOptions{Limit: n}))
		}, 0),
		"operators.Operators.Namespaces(limit)": size(1, 1e4, func(n int) error {
			return second(operators.New(e.store).Namespaces(e, operators.Filter{}, n))
		}),
		"operators.ProposeOptions.TTL": span(50*ms, 30*day, func(d time.Duration) error {
			return second(operators.New(e.store).ProposeRelease(e, operators.Lock{Kind: "lease", Key: holdfastKey(), Token: 1}, who, operators.ProposeOptions{TTL: d}))
		}, 0),
		"operators.RestoreOptions.Margin": span(ms, 30*day, func(d time.Duration) error {
			return second(operators.AfterRestore(ended, e.db, who, operators.RestoreOptions{Margin: d}))
		}, 0),

		"outbox.Options.Lease":       span(50*ms, day, func(d time.Duration) error { return relay(outbox.Options{Lease: d}) }, 0),
		"outbox.Options.Keys":        size(1, 1e4, func(n int) error { return relay(outbox.Options{Keys: n}) }, 0),
		"outbox.Options.Batch":       size(1, 1e4, func(n int) error { return relay(outbox.Options{Batch: n}) }, 0),
		"outbox.Options.MaxAttempts": size(3, 1e6, func(n int) error { return relay(outbox.Options{MaxAttempts: n}) }, 0),
		"outbox.Options.Backoff":     span(ms, day, func(d time.Duration) error { return relay(outbox.Options{Backoff: d}) }, 0),
		"outbox.Options.MaxBackoff":  span(ms, day, func(d time.Duration) error { return relay(outbox.Options{Backoff: ms, MaxBackoff: d}) }, 0),
		"outbox.Options.Poll":        span(ms, day, func(d time.Duration) error { return relay(outbox.Options{Poll: d}) }, 0),
		"outbox.Options.Keep":        span(50*ms, century, func(d time.Duration) error { return relay(outbox.Options{Keep: d}) }, 0, int64(holdfast.Forever)),
		"outbox.Outbox.Clear(keep)":  span(50*ms, century, func(d time.Duration) error { return second(box.Clear(e, d)) }, 0),

		"staged.Workflow.Lease": span(50*ms, day, func(d time.Duration) error {
			return second(runner(staged.Workflow[string, string, *sql.Tx]{Lease: d}))
		}, 0),
		"staged.Workflow.MaxAttempts": size(1, 1e6, func(n int) error {
			return second(runner(staged.Workflow[string, string, *sql.Tx]{MaxAttempts: n}))
		}, 0),
		"staged.Workflow.Backoff": span(ms, day, func(d time.Duration) error {
			return second(runner(staged.Workflow[string, string, *sql.Tx]{Backoff: d}))
		}, 0),
		"staged.Workflow.MaxBackoff": span(ms, day, func(d time.Duration) error {
			return second(runner(staged.Workflow[string, string, *sql.Tx]{Backoff: ms, MaxBackoff: d}))
		}, 0),
		"staged.KeyFormat.Length": size(26, 52, func(n int) error {
			return second(runner(staged.Workflow[string, string, *sql.Tx]{KeyFormat: staged.KeyFormat{Length: n}}))
		}, 0),
		"staged.ExternalCall.Lease":   span(50*ms, day, func(d time.Duration) error { return call(staged.ExternalCall[string]{Lease: d}, nil) }, 0),
		"staged.ExternalCall.Timeout": span(ms, 30*day, func(d time.Duration) error { return call(staged.ExternalCall[string]{Timeout: d}, nil) }, 0),
		"staged.Accepted(within)": span(50*ms, 3650*day, func(d time.Duration) error {
			return call(staged.ExternalCall[string]{}, staged.Accepted("re_1", d))
		}),
		"staged.AskAgain(after)": span(ms, 30*day, func(d time.Duration) error {
			return call(staged.ExternalCall[string]{OnLeaseEnd: staged.TakeOver}, staged.AskAgain(d))
		}),
		"staged.RunOptions.Limit":   size(1, 1e4, func(n int) error { return second(idle.Complete(ended, staged.RunOptions{Limit: n})) }, 0),
		"staged.RunOptions.Workers": size(1, 1e4, func(n int) error { return second(idle.Complete(ended, staged.RunOptions{Workers: n})) }, 0),
		"staged.RunOptions.Every":   span(10*ms, 7*day, func(d time.Duration) error { return idle.RunCompleter(ended, staged.RunOptions{Every: d}) }, 0),
		"staged.Runner.LookupID(wait)": span(ms, 366*day, func(d time.Duration) error {
			return second(idle.LookupID(ended, make([]byte, 32), d))
		}, 0, int64(holdfast.NoWait)),

		"limits.Options.Keep": span(time.Hour, century, func(d time.Duration) error { return second(limits.New(e, e.db, "x", limits.Options{Keep: d})) }, 0, int64(holdfast.Forever)),
		"limits.Request.Timeout": span(50*ms, 3660*day, func(d time.Duration) error {
			return second(capacity.Reserve(e, limits.Request{Key: "a", ID: holdfastKey(), Amount: 1, Timeout: d}))
		}, 0),

		"optimistic.RetryOptions.Attempts":    size(1, 1e6, func(n int) error { return retry(optimistic.RetryOptions{Attempts: n}) }, 0),
		"optimistic.RetryOptions.LockTimeout": span(ms, time.Hour, func(d time.Duration) error { return retry(optimistic.RetryOptions{LockTimeout: d}) }, 0),
		"register.WatchOptions.Interval": span(10*ms, time.Hour, func(d time.Duration) error {
			return first(values.Watch(ended, "a", register.WatchOptions{Interval: d}))
		}, 0),
		"register.WatchPrefixOptions.Interval": span(10*ms, time.Hour, func(d time.Duration) error {
			return first(values.WatchPrefix(ended, "a", register.WatchPrefixOptions{Interval: d}))
		}, 0),

		"doctor.Options.MaxDrift": span(ms, day, func(d time.Duration) error { return second(doctor.Check(e, e.db, doctor.Options{MaxDrift: d})) }, 0),

		"reaper.Options.Batch":        size(1, 2000, func(n int) error { return sweep(reaper.Options{Batch: n}) }, 0),
		"reaper.Options.BatchTime":    span(ms, time.Minute, func(d time.Duration) error { return sweep(reaper.Options{BatchTime: d}) }, 0),
		"reaper.Options.MaxRows":      size(1, 1e12, func(n int) error { return sweep(reaper.Options{MaxRows: int64(n)}) }, 0),
		"reaper.Options.LockGrace":    span(time.Minute, 365*day, func(d time.Duration) error { return sweep(reaper.Options{LockGrace: d}) }, 0),
		"reaper.Options.MaxClockJump": span(time.Second, day, func(d time.Duration) error { return sweep(reaper.Options{MaxClockJump: d}) }, 0),
		"reaper.Table.Grace": span(50*ms, 100*365*day, func(d time.Duration) error {
			return sweep(reaper.Options{Tables: []reaper.Table{{TableSpec: holdfast.TableSpec{Table: "shelves", Key: []string{"id"}}, Expires: "expires_at", Unit: reaper.Seconds, Scan: true, Grace: d}}})
		}, 0),
		"reaper.RunOptions.Every": span(10*ms, 7*day, func(d time.Duration) error { return sweeper.Run(ended, reaper.RunOptions{Every: d}) }, 0),

		"sqllock.Options.TTL":    span(50*ms, day, func(d time.Duration) error { return lease(sqllock.Options{TTL: d}) }, 0),
		"sqllock.Options.Margin": span(ms, 15*time.Second, func(d time.Duration) error { return lease(sqllock.Options{Margin: d}) }, 0),
		"sqllock.AcquireOptions.TTL": span(50*ms, day, func(d time.Duration) error {
			return second(locks.TryAcquire(ended, "a", sqllock.AcquireOptions{TTL: d}))
		}, 0),
		"fairlock.Locker.Semaphore(permits)": size(1, fairlock.MaxPermits, func(n int) error { return second(semaphores.Semaphore("a", n)) }),
		"fairlock.Semaphore.Acquire(n)":      permits(semaphores, func(s *fairlock.Semaphore[*sql.Tx], n int) error { return second(s.Acquire(ended, n)) }),
		"fairlock.Semaphore.TryAcquire(n)":   permits(semaphores, func(s *fairlock.Semaphore[*sql.Tx], n int) error { return second(s.TryAcquire(ended, n)) }),
		"fairlock.Semaphore.Do(n)": permits(semaphores, func(s *fairlock.Semaphore[*sql.Tx], n int) error {
			return s.Do(ended, n, func(context.Context, *sqllock.Lease) error { return nil })
		}),
		"rowlock.Locker.LockTx(wait)": span(ms, day, func(d time.Duration) error {
			return e.db.InTx(e, func(ctx context.Context, tx *sql.Tx) error { return keys.LockTx(ctx, tx, "a", d) })
		}, 0, int64(holdfast.Forever), int64(holdfast.NoWait)),
		"rowlock.Locker.Hold(wait)": span(ms, day, func(d time.Duration) error { return second(keys.Hold(e, "a", d)) }, 0, int64(holdfast.Forever), int64(holdfast.NoWait)),
		"rowlock.Table.LockTx(wait)": span(ms, day, func(d time.Duration) error {
			return e.db.InTx(e, func(ctx context.Context, tx *sql.Tx) error { return second(shelves.LockTx(ctx, tx, d, shelf{ID: "1"})) })
		}, 0, int64(holdfast.Forever), int64(holdfast.NoWait)),
		"rowlock.Table.NextTx(n)": size(1, 1000, func(n int) error {
			return e.db.InTx(e, func(ctx context.Context, tx *sql.Tx) error { return second(shelves.NextTx(ctx, tx, n)) })
		}),
	}
}

type env struct {
	context.Context
	db    db
	store store
}

type shelf struct {
	ID string `db:"id"`
}

var who = holdfast.Actor{By: "olga", Reason: "a test"}

func permits(l *fairlock.Locker[*sql.Tx], call func(s *fairlock.Semaphore[*sql.Tx], n int) error) bound {
	return size(1, 3, func(n int) error { return call(must(l.Semaphore("a", 3)), n) })
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func second[T any](_ T, err error) error { return err }

func first[T any](all func(yield func(T, error) bool)) (err error) {
	for _, e := range all {
		return e
	}
	return nil
}

func holdfastKey() string { return idemclient.NewKey() }

// answers is a server that says yes.
type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("")), Request: r, Header: http.Header{}}, nil
}

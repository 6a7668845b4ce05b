package bounds_test

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
	"github.com/holdfast-go/holdfast/sqllock/fence"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// errShared means that a call has met what another owner's call has written.
var errShared = errors.New("it is shared with another owner")

// owned are the handles of a program that names an owner, or none.
type owned struct {
	*conformance.Env[*sql.Tx]
	db     db
	owner  string
	store  store
	locks  *sqllock.Locker[*sql.Tx]
	rows   *rowlock.Locker[*sql.Tx]
	limits *limits.Limits[*sql.Tx]
	values *register.Register[*sql.Tx]
	box    *outbox.Outbox[*sql.Tx]
}

// ownedBy opens the handles, with For of the owner, unless that is empty.
func ownedBy(e *conformance.Env[*sql.Tx], d db, owner string) *owned {
	locks := must(sqllock.New(e.Ctx, d))
	e.Cleanup(func() { _ = locks.Close(context.WithoutCancel(e.Ctx)) })
	o := &owned{
		e, d, owner, must(idempotency.New(e.Ctx, d)), locks, must(rowlock.New(e.Ctx, d)), must(limits.New(e.Ctx, d, "refunds")), must(register.New(e.Ctx, d)),
		must(outbox.New(e.Ctx, d, "mail")),
	}
	if owner != "" {
		o.locks, o.rows, o.limits, o.values = o.locks.For(owner), o.rows.For(owner), o.limits.For(owner), o.values.For(owner)
	}
	return o
}

// inTx runs f in a transaction.
func (o *owned) inTx(f func(ctx context.Context, tx *sql.Tx) error) error { return o.db.InTx(o.Ctx, f) }

func (o *owned) op() idempotency.Op {
	return idempotency.Op{Owner: o.owner, Name: "refund", Key: "42", NoFingerprint: true}
}

// executed returns errShared unless a call was executed.
func executed(outcome idempotency.Outcome, err error) error {
	if err == nil && outcome != idempotency.Executed {
		err = errShared
	}
	return err
}

// but returns err unless it is one that a call may return.
func but(allowed, err error) error {
	if errors.Is(err, allowed) {
		return nil
	}
	return err
}

// notFound returns err unless there is nothing under the key.
func notFound(err error) error { return but(limits.ErrNotFound, but(optimistic.ErrNotFound, err)) }

// ended returns the error of a watch whose context has ended.
func ended[T any](o *owned, watch func(ctx context.Context) iter.Seq2[T, error]) error {
	ctx, end := context.WithCancel(o.Ctx)
	end()
	return but(context.Canceled, firstOf(watch(ctx)))
}

// firstOf returns the error of the first element.
func firstOf[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		return err
	}
	return nil
}

// ownedCalls has each call that names an owner, or is of a handle that does, with the field of its error. A
// call is made once for each of two owners, with one key.
func ownedCalls() map[string]struct {
	field string
	call  func(o *owned) error
} {
	type c = struct {
		field string
		call  func(o *owned) error
	}
	request := limits.Request{Key: "42", ID: "1", Amount: 10}
	run := func(o *owned) *staged.Runner[string, string, *sql.Tx] {
		return must(staged.New(o.store, staged.Workflow[string, string, *sql.Tx]{Name: "payout", Run: func(context.Context, *staged.Run[*sql.Tx], string) (string, error) { return "", nil }}))
	}
	nothing := func(context.Context, *sql.Tx) error { return nil }
	why := holdfast.Actor{By: "olga", Reason: "asked"}
	return map[string]c{
		"idempotency.Do": {"Op.Owner", func(o *owned) error {
			r, err := idempotency.Do(o.Ctx, o.store, o.op(), func(context.Context, *sql.Tx) (string, error) { return "", nil })
			return executed(r.Outcome, err)
		}},
		"idempotency.EraseScope": {"Op.Owner", func(o *owned) error {
			return second(o.store.EraseScope(o.Ctx, idempotency.Erasure{Owner: o.owner, Actor: why}))
		}},
		"staged.Do": {"Op.Owner", func(o *owned) error {
			r, err := run(o).Do(o.Ctx, idempotency.Op{Owner: o.owner, Key: "42"}, "")
			return executed(r.Outcome, err)
		}},
		"inbox.Process": {"Op.Owner", func(o *owned) error {
			return executed(must(inbox.New(o.store, "ledger")).Process(o.Ctx, inbox.Message{Owner: o.owner, ID: "42"}, nothing))
		}},
		"cron.Once": {"Op.Owner", func(o *owned) error {
			outcome, _, err := cron.Once(o.Ctx, o.store, cron.Job{Owner: o.owner, Name: "close", Schedule: cron.Every(24*time.Hour, 0)}, func(context.Context, *sql.Tx, time.Time) error { return nil })
			return executed(outcome, err)
		}},
		"idemhttp.New": {"Options.Owner", func(o *owned) error {
			options := idemhttp.Options{}
			if o.owner != "" {
				options.Owner = func(*http.Request) (string, error) { return o.owner, nil }
			}
			return second(idemhttp.New(o.store, idemhttp.Operation("refund"), options))
		}},
		"outbox.Write": {"messages[0].Owner", func(o *owned) error {
			return o.inTx(func(ctx context.Context, tx *sql.Tx) error {
				return o.box.Write(ctx, tx, outbox.Message{Owner: o.owner, Key: "42"})
			})
		}},

		"limits.Take": {"owner", func(o *owned) error {
			if _, err := o.limits.Set(o.Ctx, "42", 10); err != nil {
				return err
			}
			taken, err := o.limits.Take(o.Ctx, request)
			if err == nil && taken.Replayed {
				err = errShared
			}
			return err
		}},
		"limits.TakeTx": {"owner", func(o *owned) error {
			return o.inTx(func(ctx context.Context, tx *sql.Tx) error {
				return notFound(second(o.limits.TakeTx(ctx, tx, limits.Request{Key: "none", ID: "2", Amount: 1})))
			})
		}},
		"limits.Reserve": {"owner", func(o *owned) error {
			return notFound(second(o.limits.Reserve(o.Ctx, limits.Request{Key: "none", ID: "2", Amount: 1})))
		}},
		"limits.Capture": {"owner", func(o *owned) error {
			return notFound(second(o.limits.Capture(o.Ctx, limits.Request{Key: "42", ID: "none"})))
		}},
		"limits.Void": {"owner", func(o *owned) error {
			return notFound(second(o.limits.Void(o.Ctx, limits.Request{Key: "42", ID: "none"})))
		}},
		"limits.Get":     {"owner", func(o *owned) error { return notFound(second(o.limits.Get(o.Ctx, "42"))) }},
		"limits.Entry":   {"owner", func(o *owned) error { return notFound(second(o.limits.Entry(o.Ctx, "1"))) }},
		"limits.Entries": {"owner", func(o *owned) error { return firstOf(o.limits.Entries(o.Ctx, "42")) }},
		"limits.Expire":  {"owner", func(o *owned) error { return notFound(second(o.limits.Expire(o.Ctx, "42"))) }},
		"limits.Erase":   {"owner", func(o *owned) error { return second(o.limits.Erase(o.Ctx, why)) }},
		"limits.New": {"Table.Owner", func(o *owned) error {
			table := &limits.Table{TableSpec: holdfast.TableSpec{Table: "orders", Key: []string{"no"}}, Limit: "paid", Captured: "refunded"}
			if o.owner != "" {
				table.Owner, table.Key = "merchant", []string{"merchant", "no"}
			}
			return second(limits.New(o.Ctx, o.db, "orders", limits.Options{Table: table}))
		}},

		"sqllock.Acquire":    {"owner", func(o *owned) error { return second(o.locks.Acquire(o.Ctx, "acquired")) }},
		"sqllock.TryAcquire": {"owner", func(o *owned) error { return second(o.locks.TryAcquire(o.Ctx, "tried")) }},
		"sqllock.AcquireAll": {"owner", func(o *owned) error { return second(o.locks.AcquireAll(o.Ctx, []string{"a", "b"})) }},
		"sqllock.Do": {"owner", func(o *owned) error {
			return o.locks.Do(o.Ctx, "done", func(context.Context, *sqllock.Lease) error { return nil })
		}},
		"sqllock.Inspect": {"owner", func(o *owned) error {
			_, _, err := o.locks.Inspect(o.Ctx, "42")
			return err
		}},
		"sqllock.List": {"owner", func(o *owned) error { return firstOf(o.locks.List(o.Ctx)) }},
		"sqllock.Watch": {"owner", func(o *owned) error {
			return ended(o, func(ctx context.Context) iter.Seq2[sqllock.Event, error] { return o.locks.Watch(ctx, "42") })
		}},
		"sqllock.WatchPrefix": {"owner", func(o *owned) error {
			return ended(o, func(ctx context.Context) iter.Seq2[sqllock.Event, error] { return o.locks.WatchPrefix(ctx, "") })
		}},
		"election.Observe":     {"owner", func(o *owned) error { return ended(o, election.New(o.locks, "leader").Observe) }},
		"sqllock.ForceRelease": {"owner", func(o *owned) error { return second(o.locks.ForceRelease(o.Ctx, "42", 0, why)) }},
		"sqllock.Guard": {"owner", func(o *owned) error {
			return but(sqllock.ErrLost, o.inTx(func(ctx context.Context, tx *sql.Tx) error {
				return o.locks.Guard(ctx, tx, o.locks.Term("42", 1))
			}))
		}},
		"election.Campaign": {"owner", func(o *owned) error { return second(election.New(o.locks, "leader").Campaign(o.Ctx, nil)) }},
		"election.Leader": {"owner", func(o *owned) error {
			_, _, err := election.New(o.locks, "leader").Leader(o.Ctx)
			return err
		}},
		"fairlock.Acquire":    {"owner", func(o *owned) error { return second(fairlock.New(o.locks).Acquire(o.Ctx, "fair")) }},
		"fairlock.TryAcquire": {"owner", func(o *owned) error { return second(fairlock.New(o.locks).TryAcquire(o.Ctx, "try")) }},
		"fairlock.Queue":      {"owner", func(o *owned) error { return second(fairlock.New(o.locks).Queue(o.Ctx, "fair")) }},
		"fairlock.Queues":     {"owner", func(o *owned) error { return firstOf(fairlock.New(o.locks).Queues(o.Ctx)) }},
		"fairlock.Semaphores": {"owner", func(o *owned) error { return firstOf(fairlock.New(o.locks).Semaphores(o.Ctx)) }},
		"fairlock.Semaphore": {"owner", func(o *owned) error {
			s, err := fairlock.New(o.locks).Semaphore("permits", 1)
			if err == nil {
				_, err = s.TryAcquire(o.Ctx, 1)
			}
			return err
		}},
		"fairlock.ForceRelease": {"owner", func(o *owned) error { return second(fairlock.New(o.locks).ForceRelease(o.Ctx, "fair", 1, why)) }},
		"rowlock.LockTx": {"owner", func(o *owned) error {
			return o.inTx(func(ctx context.Context, tx *sql.Tx) error { return o.rows.LockTx(ctx, tx, "42", holdfast.NoWait) })
		}},
		"rowlock.Hold": {"owner", func(o *owned) error {
			held, err := o.rows.Hold(o.Ctx, "held", holdfast.NoWait)
			if err == nil {
				o.Cleanup(func() { _ = held.Release(context.WithoutCancel(o.Ctx)) })
			}
			return but(holdfast.ErrUnsupported, err)
		}},
		"fence.New": {"Spec.Owner", func(o *owned) error {
			spec := fence.Spec{Table: "orders", Key: "order/{no}"}
			if o.owner != "" {
				spec.Owner = "{merchant}"
			}
			return second(fence.New(o.Ctx, o.db, spec))
		}},

		"register.Create":         {"owner", func(o *owned) error { return second(o.values.Create(o.Ctx, "42", nil)) }},
		"register.Get":            {"owner", func(o *owned) error { return notFound(second(o.values.Get(o.Ctx, "none"))) }},
		"register.CompareAndSwap": {"owner", func(o *owned) error { return notFound(second(o.values.CompareAndSwap(o.Ctx, "none", 1, nil))) }},
		"register.Delete":         {"owner", func(o *owned) error { return notFound(second(o.values.Delete(o.Ctx, "none", 1))) }},
		"register.List":           {"owner", func(o *owned) error { return firstOf(o.values.List(o.Ctx, "")) }},
		"register.Watch": {"owner", func(o *owned) error {
			return ended(o, func(ctx context.Context) iter.Seq2[register.Entry, error] { return o.values.Watch(ctx, "42") })
		}},
		"register.WatchPrefix": {"owner", func(o *owned) error {
			return ended(o, func(ctx context.Context) iter.Seq2[register.Entry, error] { return o.values.WatchPrefix(ctx, "") })
		}},
	}
}

// TestOwners makes each call that names an owner without one, and with one where there is a single owner: the
// error says so, and nothing is written. With owners, the calls of two of them do not meet.
func TestOwners(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		key := e.Text() + ` NOT NULL`
		e.Must(`CREATE TABLE orders (merchant ` + key + `, no ` + key + `, paid BIGINT NOT NULL, refunded BIGINT NOT NULL, fence BIGINT NOT NULL, PRIMARY KEY (merchant, no))`)
		many := must(holdfastsql.Open(e.Ctx, e.SQL))
		single := must(holdfastsql.Open(e.Ctx, e.SQL, holdfast.Options{SingleOwner: true}))
		calls := ownedCalls()
		for _, bad := range []struct {
			o       *owned
			problem string
		}{
			{ownedBy(e, many, ""), "is missing: "},
			{ownedBy(e, single, "shop-7"), "is given, and the DB is SingleOwner: leave one of them out"},
		} {
			for name, c := range calls {
				var input *holdfast.InputError
				if err := c.call(bad.o); !errors.As(err, &input) || input.Field != c.field || !strings.HasPrefix(input.Problem, bad.problem) {
					e.Errorf("%s: %v, want %s: %s", name, err, c.field, bad.problem)
				}
			}
		}
		for _, table := range []string{"records", "staged", "limits", "limit_entries", "locks", "tickets", "registers", "outbox"} {
			if n := e.Int(`SELECT COUNT(*) FROM holdfast_` + table); n != 0 {
				e.Errorf("%d rows are in %s", n, table)
			}
		}
		for _, owner := range []string{"anna", "bob"} {
			o := ownedBy(e, many, owner)
			for name, c := range calls {
				if err := c.call(o); err != nil {
					e.Errorf("%s of %s: %v", name, owner, err)
				}
			}
		}
	})
}

package operators

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/auditlog"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

const (
	defaultRestoreMargin = time.Minute
	maxRestoreMargin     = 30 * 24 * time.Hour
)

// RestoreOptions configures AfterRestore.
type RestoreOptions struct {
	// Margin is the maximum difference between the clocks of the old and the new server. Every new
	// token exceeds the present clock by Margin, and so exceeds every token that was granted and
	// lost. Default: a minute; 1 ms to 30 days.
	Margin time.Duration
}

// Restored is the result of AfterRestore.
type Restored struct {
	// Floor is a lower bound: every new token exceeds it.
	Floor int64
	// Locks is the number of locks whose tokens were raised, which fences out their holders.
	// Tickets is the number of deleted tickets.
	Locks, Tickets int64
	// Parked is the number of staged operations that were parked as unknown, in all namespaces.
	Parked int
}

// AfterRestore makes a database safe to use after a restore to an earlier point in time, after a
// failover to a copy that lacked the last commits, or if it is a clone of another database. Call
// it while no program uses the database; docs/howto/after-restore.md is the runbook.
//
// In one transaction it does the following:
//   - It raises the floor of the fencing tokens, and with it the tokens of all locks and staged
//     operations, so that a lease from the lost time passes no guard.
//   - It gives the tables a new identity, so that terms granted by other copies of the tables
//     are refused, and a Locker that was opened before guards nothing more
//     (sqllock.ErrOtherStore).
//   - It ends every lease and queue.
//   - It parks every pending staged operation as unknown, because calls may have been made in
//     the lost time, and records each with who and why.
//
// It does not raise the revisions of registers nor the versions of rows (package optimistic): clients
// must drop those that they read before the restore.
//
// A second call repeats all of this.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], [idempotency.ErrUnknown] (call it again),
// errors of the driver.
func AfterRestore[Tx any](ctx context.Context, db *holdfast.DB[Tx], who holdfast.Actor, opts ...RestoreOptions) (done Restored, err error) {
	o, err := options.One(opts)
	if err != nil {
		return done, err
	}
	if o.Margin == 0 {
		o.Margin = defaultRestoreMargin
	}
	if err := options.Wait.UpTo(maxRestoreMargin).Check("RestoreOptions.Margin", o.Margin); err != nil {
		return done, err
	}
	if err := check(who); err != nil {
		return done, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return done, err
	}
	r := newRestore(db, who, o)
	// Wait longer for the tables' locks than a request would: a person is waiting.
	err = db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		q, err := access.Of(db).Join(tx)
		if err == nil {
			done, err = r.run(ctx, q)
		}
		return err
	}, holdfast.TxOptions{LockTimeout: time.Minute})
	return done, err
}

type restore struct {
	restoreSQL

	audit   *auditlog.Log
	who     holdfast.Actor
	o       RestoreOptions
	floorAt string
}

func newRestore[Tx any](db *holdfast.DB[Tx], who holdfast.Actor, o RestoreOptions) *restore {
	a := access.Of(db)
	return &restore{compile(a.Dialect, a.Table).restore, auditlog.New(a.Dialect, a.Table), who, o, a.Table("floor")}
}

const parkedByRestore = "the database was restored to an earlier point: calls may have been made that it does not know of"

func (r *restore) run(ctx context.Context, q core.Querier) (done Restored, err error) {
	if _, err = r.most.QueryRow(ctx, q, []any{&done.Floor}, r.o.Margin.Microseconds()); err != nil {
		return done, err
	}
	done.Floor++
	res, err := r.floor.Exec(ctx, q, done.Floor, once.RandomID()) // any 16 random bytes
	if err != nil {
		return done, err
	}
	if res.Affected != 1 {
		return done, &holdfast.SchemaError{Table: r.floorAt}
	}
	if res, err = r.locks.Exec(ctx, q, done.Floor, r.who.By, r.who.Reason); err != nil {
		return done, err
	}
	done.Locks = res.Affected
	if res, err = r.claims.Exec(ctx, q); err != nil {
		return done, err
	}
	done.Tickets = res.Affected
	if _, err = r.waiters.Exec(ctx, q); err != nil {
		return done, err
	}
	parked, err := r.unfinished(ctx, q)
	if err != nil {
		return done, err
	}
	for _, p := range parked {
		if _, err := r.intervene.Exec(ctx, q, p.id.Owner, once.RandomID(), p.id.Hash[:], p.namespace, "after-restore", r.who.By, r.who.Reason); err != nil {
			return done, err
		}
	}
	done.Parked = len(parked)
	if _, err = r.park.Exec(ctx, q, done.Floor, parkedByRestore); err != nil {
		return done, err
	}
	return done, r.audit.Append(ctx, q, auditlog.Entry{
		Actor: r.who.By, Action: "after-restore", Reason: r.who.Reason, Kind: "database",
		After: map[string]int64{"floor": done.Floor, "locks": done.Locks, "tickets": done.Tickets, "parked": int64(done.Parked)},
	})
}

type unfinished struct {
	id        once.ID
	namespace string
}

func (r *restore) unfinished(ctx context.Context, q core.Querier) ([]unfinished, error) {
	rows, err := r.pending.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	return core.Collect(rows, func(row core.Row) (u unfinished, err error) {
		err = row.Scan(&u.id.Owner, once.Into(&u.id.Hash), &u.namespace)
		return u, err
	})
}

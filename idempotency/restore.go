package idempotency

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// DefaultRestoreMargin and MaxRestoreMargin bound RestoreOptions.Margin.
const (
	DefaultRestoreMargin = time.Minute
	MaxRestoreMargin     = 30 * 24 * time.Hour
)

// RestoreOptions are those of AfterRestore.
type RestoreOptions struct {
	Who
	// Margin is how far the clocks of the old and the new server may be apart:
	// every token from now on exceeds the present clock by it, and with it every
	// token that was handed out and lost. Default: a minute; at most 30 days.
	Margin time.Duration
}

// Restored is what AfterRestore did.
type Restored struct {
	// Floor is what every token exceeds from now on.
	Floor int64
	// Locks is how many locks' tokens were raised, which fences their holders
	// out; Claims how many places in lines were cleared.
	Locks, Claims int64
	// Parked is how many staged operations were parked as unknown, in all
	// namespaces.
	Parked int
}

// AfterRestore makes a database safe to work on after a restore to an earlier
// point in time, or a failover to a copy that lacked the last commits. Call it
// while no program works on it; docs/after-restore.md is the runbook. In one
// transaction it raises the floor of the fencing tokens, and with it those of all
// locks and staged operations, so that nobody who was granted one in the lost time
// gets past a guard; ends every lease and line; and parks every pending staged
// operation as unknown, because calls may have been made in the lost time. Each
// of those is recorded with who and why. Called again, it does it again.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema], [ErrUnknown] (call it
// again), the driver's.
func AfterRestore[Tx any](ctx context.Context, db *holdfast.DB[Tx], o RestoreOptions) (done Restored, err error) {
	if o.Margin == 0 {
		o.Margin = DefaultRestoreMargin
	}
	if o.Margin < 0 || o.Margin > MaxRestoreMargin {
		return done, invalid("RestoreOptions.Margin", "is not between 0 (default) and 30 days")
	}
	if err := o.check(); err != nil {
		return done, err
	}
	if err := db.CheckSchema(ctx); err != nil {
		return done, err
	}
	r := newRestore(db, o)
	// The tables' locks are waited for longer than a request would: this is for a person.
	err = db.InTx(ctx, holdfast.TxOptions{LockTimeout: time.Minute}, func(ctx context.Context, tx Tx) error {
		q, err := db.Access().Join(tx)
		if err == nil {
			done, err = r.run(ctx, q)
		}
		return err
	})
	return done, err
}

type restore struct {
	o                                                             RestoreOptions
	floorAt                                                       string
	most, floor, locks, claims, waiters, pending, park, intervene core.Stmt
}

func newRestore[Tx any](db *holdfast.DB[Tx], o RestoreOptions) *restore {
	a := db.Access()
	d, text := &a.Dialect.Staged, stagedTables(a.Table, a.Dialect.Now)
	x := func(name, s string) core.Stmt { return a.Dialect.Compile("restore."+name, text.Replace(s)) }
	return &restore{
		o: o, floorAt: a.Table("floor"),
		most: x("most", d.Restore.Most), floor: x("floor", d.Restore.Floor), locks: x("locks", d.Restore.Locks),
		claims: x("claims", d.Restore.Claims), waiters: x("waiters", d.Restore.Waiters),
		pending: x("pending", d.Restore.Pending), park: x("park", d.Restore.Park), intervene: x("intervene", d.Intervene),
	}
}

const parkedByRestore = "the database was restored to an earlier point: calls may have been made that it does not know of"

func (r *restore) run(ctx context.Context, q core.Querier) (done Restored, err error) {
	if _, err = r.most.QueryRow(ctx, q, []any{&done.Floor}, r.o.Margin.Microseconds()); err != nil {
		return done, err
	}
	done.Floor++
	res, err := r.floor.Exec(ctx, q, done.Floor)
	if err != nil {
		return done, err
	}
	if res.Affected != 1 {
		return done, &holdfast.SchemaError{Table: r.floorAt}
	}
	if res, err = r.locks.Exec(ctx, q, done.Floor, r.o.By, r.o.Reason); err != nil {
		return done, err
	}
	done.Locks = res.Affected
	if res, err = r.claims.Exec(ctx, q); err != nil {
		return done, err
	}
	done.Claims = res.Affected
	if _, err = r.waiters.Exec(ctx, q); err != nil {
		return done, err
	}
	parked, err := r.unfinished(ctx, q)
	if err != nil {
		return done, err
	}
	for _, p := range parked {
		if _, err := r.intervene.Exec(ctx, q, newOwner(), p.key, p.namespace, "after-restore", r.o.By, r.o.Reason); err != nil {
			return done, err
		}
	}
	done.Parked = len(parked)
	_, err = r.park.Exec(ctx, q, done.Floor, parkedByRestore)
	return done, err
}

type unfinished struct {
	key       []byte
	namespace string
}

func (r *restore) unfinished(ctx context.Context, q core.Querier) (list []unfinished, err error) {
	rows, err := r.pending.Query(ctx, q)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var u unfinished
		if err := rows.Scan(&u.key, &u.namespace); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, firstOf(rows.Err(), rows.Close())
}

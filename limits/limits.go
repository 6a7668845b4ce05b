package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/options"
)

const minKeep = time.Hour

// Options configure Limits. The zero value of each field is its default.
type Options struct {
	// Table is a table of the program's own whose rows are the limits. Default: a table of Holdfast's.
	Table *Table
	// Keep is how long an id is remembered after its reservation has ended, or its amount was taken: at
	// least an hour, at most 100 years. The reaper then deletes the entry, and the id can be used again. Default: [holdfast.Forever].
	Keep time.Duration
}

// Limits are the limits of one kind, such as all refunds or all payouts. It is safe for concurrent use
// and needs no closing.
type Limits[Tx any] struct {
	db     *holdfast.DB[Tx]
	access access.Access[Tx]
	name   string
	owner  core.Owner
	keep   any // µs, or nil for ever
	home   home
	sql    statements
}

// New opens the limits of a name, which has at most 128 bytes. The ids of different names, and the
// limits, have nothing to do with each other. With Options.Table it checks the table. Open a name with
// the same table in all programs: its entries are those of that table's rows.
//
// Errors: [holdfast.ErrInvalid] says what is refused and what to declare; [holdfast.ErrSchema] when
// Holdfast's tables are missing; the error of ctx; the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], name string, opts ...Options) (*Limits[Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	o, err := options.One(opts)
	if err != nil {
		return nil, err
	}
	if err := core.CheckName("name", name, false); err != nil {
		return nil, err
	}
	l := &Limits[Tx]{db: db, access: access.Of(db), name: name}
	l.owner = l.access.Owners.Owner("")
	if o.Keep != 0 && o.Keep != holdfast.Forever {
		if err := (options.Span{Least: minKeep, Most: options.Century, Zero: "for ever"}).Check("Options.Keep", o.Keep); err != nil {
			return nil, err
		}
		l.keep = o.Keep.Microseconds()
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	if l.home, err = homeOf(ctx, l.access.Catalog, l.access.Owners, o.Table); err != nil {
		return nil, err
	}
	if l.home.own {
		l.home.row = ownRow(l.access.Table("limits"), "")
	}
	l.home.row.entries = l.access.Table("limit_entries")
	l.sql = compile(l.access.Dialect, l.access.Table, l.home.row)
	return l, nil
}

// For returns the limits of an owner, such as a merchant, a tenant or an account: its stable id, at most
// 128 bytes of UTF-8. Limits and ids of different owners are different, also with the same keys. For costs
// nothing. Calls return [holdfast.ErrInvalid] for an owner that is not valid. The Limits of New have no owner,
// and are for a DB with holdfast.Options.SingleOwner, where no owner is named.
func (l *Limits[Tx]) For(owner string) *Limits[Tx] {
	of := *l
	of.owner = l.access.Owners.Owner(owner)
	return &of
}

// own returns the arguments of a statement on entries.
func (l *Limits[Tx]) own(more ...any) []any {
	return append([]any{l.owner.ID, []byte(l.name)}, more...)
}

// counter returns the arguments of a statement on the row of a limit: numbers, then its key.
func (l *Limits[Tx]) counter(at place, numbers ...any) []any {
	args := make([]any, 0, len(numbers)+6)
	if l.home.row.owner != "" {
		args = append(args, at.owner)
	}
	args = append(args, numbers...)
	if l.home.own {
		args = append(args, []byte(l.name))
	}
	return append(args, at.key)
}

// place is where a limit is: its key, and the values of the columns of its row.
type place struct {
	limit      string
	owner, key any
}

func (p place) bytes() []byte { return []byte(p.limit) }

// place checks the key of a limit.
func (l *Limits[Tx]) place(field, limit string) (place, error) {
	if l.owner.Err != nil {
		return place{}, l.owner.Err
	}
	if limit == "" || len(limit) > MaxKey {
		return place{}, invalid(field, fmt.Sprintf("has %d bytes: use 1 to %d", len(limit), MaxKey))
	}
	if l.home.own {
		return place{limit, l.owner.ID, []byte(limit)}, nil
	}
	owner, key, err := l.home.find(field, l.owner.ID, limit)
	return place{limit, owner, key}, err
}

// status is the row of a limit.
type status struct{ limit, reserved, captured int64 }

func (s status) available() int64 { return s.limit - s.captured - s.reserved }

// lock locks the row of a limit and reads it.
func (l *Limits[Tx]) lock(ctx context.Context, q core.Querier, at place) (s status, err error) {
	found, err := l.sql.lock.run(ctx, q, []any{&s.limit, &s.reserved, &s.captured}, l.counter(at))
	if err == nil && !found {
		err = &NotFoundError{Key: at.limit}
	}
	return s, err
}

// change adds to the counters of a row, which is locked.
func (l *Limits[Tx]) change(ctx context.Context, q core.Querier, at place, reserved, captured int64) error {
	numbers := []any{reserved, captured}
	if l.home.row.reserved == "" {
		numbers = numbers[1:]
	}
	done, err := l.sql.change.Exec(ctx, q, l.counter(at, numbers...)...)
	if err == nil && done.Affected != 1 {
		err = errCounters
	}
	return err
}

// join runs f in the caller's transaction, and rolls it back after an error that is no refusal.
func join[T, Tx any](ctx context.Context, l *Limits[Tx], tx Tx, f func(q core.Querier) (T, error)) (T, error) {
	q, err := l.access.Join(tx)
	if err != nil {
		return *new(T), err
	}
	var out T
	if err = l.access.Alive(ctx, q); err == nil {
		out, err = f(q)
	}
	if err == nil || isRefusal(err) {
		return out, err
	}
	cleanup, cancel := core.Cleanup(ctx)
	defer cancel()
	_ = l.access.Rollback(cleanup, tx) // fails if the connection or the transaction has ended
	switch {
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case l.access.Dialect.Classify(err) == dialect.Gone:
		err = &holdfast.TxLostError{Err: err}
	case l.db.Retryable(err):
		err = &holdfast.RetryError{Attempts: 1, Err: err}
	}
	return *new(T), err
}

// inTx runs f in a separate transaction. A refusal commits: reservations that were found to have
// expired stay closed.
func inTx[T, Tx any](ctx context.Context, l *Limits[Tx], f func(ctx context.Context, q core.Querier) (T, error)) (T, error) {
	var out T
	var refused error
	ctx = l.access.Trace.Quiet(ctx)
	err := l.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		q, err := l.access.Join(tx)
		if err != nil {
			return err
		}
		out, err = f(ctx, q)
		if refused = nil; isRefusal(err) {
			refused, err = err, nil
		}
		return err
	}, holdfast.TxOptions{Isolation: l.access.Dialect.Sweep.Isolation})
	if err != nil {
		return *new(T), err
	}
	return out, refused
}

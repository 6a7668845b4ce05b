package limits

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/internal/trace"
)

// Status is a limit and what is used of it. Reserved does not count reservations whose time has passed,
// except in the result of Set.
type Status struct {
	Limit, Reserved, Captured int64
	// Available is what is left: Limit less Reserved and Captured.
	Available int64
}

func statusOf(s status, overdue int64) Status {
	s.reserved -= overdue
	return Status{Limit: s.limit, Reserved: s.reserved, Captured: s.captured, Available: s.available()}
}

// Get reads a limit with one statement, without a lock. What is available may be used by another call
// before it is reserved. At READ UNCOMMITTED, on MySQL and MariaDB, it may be of a transaction that is
// rolled back later, as [Limits.Entry] and [Limits.Entries] may be.
//
// Errors: [ErrNotFound], [holdfast.ErrInvalid]; the error of ctx; the driver's.
func (l *Limits[Tx]) Get(ctx context.Context, key string) (out Status, err error) {
	ctx, span := l.access.Trace.Start(ctx, trace.Call{Name: "limits.get", Operation: l.name})
	defer func() { span.End(err, outcome) }()
	at, err := l.place("key", key)
	if err != nil {
		return Status{}, err
	}
	args := l.counter(at)
	if !l.home.own {
		args = append(args, l.owner.ID, []byte(l.name), at.bytes())
	}
	var s status
	var overdue int64
	found, err := l.sql.read.QueryRow(ctx, l.access.Pool, []any{&s.limit, &s.reserved, &s.captured, &overdue}, args...)
	switch {
	case err != nil:
		return Status{}, err
	case !found:
		return Status{}, &NotFoundError{Key: key}
	}
	return statusOf(s, overdue), nil
}

// Entry reads the entry of an id, in any state. The Replayed of the result is false.
//
// Errors: [ErrNotFound], [holdfast.ErrInvalid]; the error of ctx; the driver's.
func (l *Limits[Tx]) Entry(ctx context.Context, id string) (e Entry, err error) {
	if err := (Request{ID: id}).checkID(); err != nil {
		return Entry{}, err
	}
	if l.owner.Err != nil {
		return Entry{}, l.owner.Err
	}
	e, found, err := l.entry(ctx, l.access.Pool, l.sql.entry, id)
	if err == nil && !found {
		err = &NotFoundError{ID: id}
	}
	return e, err
}

func (l *Limits[Tx]) entry(ctx context.Context, q core.Querier, stmt core.Stmt, id string) (e Entry, found bool, err error) {
	var key, limit []byte
	var created int64
	var overdue int
	found, err = stmt.QueryRow(ctx, q, dest(&e, &key, &limit, &created, &overdue), l.own([]byte(id))...)
	if err != nil || !found {
		return Entry{}, false, err
	}
	e.fill(key, limit, created, overdue)
	return e, true, nil
}

const listPage = 500 // entries that Entries reads with one statement

// ListOptions select entries. The zero value of each field is its default.
type ListOptions struct {
	// State selects the entries in this state. A reservation whose time has passed is listed as Expired,
	// and found under Reserved until it is closed: see [Limits.Expire]. Default: all, those that are
	// reserved first.
	State State
	// After is the entry that the list continues after, as it was listed. Default: from the beginning.
	After Entry
}

// Entries iterates over the entries of a limit, the earliest first: within a state, reservations by their
// expiry, and the others by when they ended. It reads 500 at a time and is no snapshot. The writers of one
// limit follow each other, so what is captured while Captured is read comes behind the last one, unless the
// database's clock is set back. It ends at the first error.
//
// Errors: [holdfast.ErrInvalid]; the error of ctx; the driver's. A limit that does not exist has none.
func (l *Limits[Tx]) Entries(ctx context.Context, key string, opts ...ListOptions) iter.Seq2[Entry, error] {
	o, err := options.One(opts)
	at, badKey := l.place("key", key)
	if err = cmp.Or(err, badKey); err == nil && (o.State < 0 || o.State > Expired) {
		err = invalid("ListOptions.State", fmt.Sprintf("%d is no state", o.State))
	}
	return core.Pages(err, o.After, listPage, func(after Entry) ([]Entry, error) {
		stmt, from := l.sql.list, after.at
		if o.State != 0 {
			stmt, from = l.sql.listOf, o.State
		}
		rows, err := stmt.Query(ctx, l.access.Pool, l.own(at.bytes(), int(from), after.due, []byte(after.ID), listPage)...)
		if err != nil {
			return nil, err
		}
		return core.Collect(rows, scan)
	})
}

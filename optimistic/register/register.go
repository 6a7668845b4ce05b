package register

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/optimistic/internal/work"
)

const (
	// MaxName is the maximum length of a name in bytes.
	MaxName = 1024
	// MaxValue is the maximum length of a value in bytes.
	MaxValue = 64 << 10
)

// Entry is a named value as it was read or written.
type Entry struct {
	// Name is the exact bytes of the name.
	Name string
	// Value is nil if the name has no value. An empty value is not nil.
	Value []byte
	// Revision goes up by one with each change of the name, deletions included. It
	// is 0 for a name that never had a value.
	Revision int64
}

// Register reads and changes named values. It is safe for concurrent use and needs
// no closing.
type Register[Tx any] struct {
	work  work.Work[Tx]
	owner core.Owner

	statements
}

// New opens the register of db.
//
// Errors: [holdfast.ErrInvalid]; [holdfast.ErrSchema] when Holdfast's tables are
// missing; the error of ctx; the driver's.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (*Register[Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	r := &Register[Tx]{work: work.On(db)}
	r.owner = r.work.Access.Owners.Owner("")
	r.statements = compile(r.work.Access.Dialect, r.work.Access.Table)
	return r, nil
}

// For returns the values of an owner, such as a merchant, a tenant or an account: its stable id, at
// most 128 bytes of UTF-8. Values of different owners are different values, regardless of their names.
// For costs nothing. Calls return [holdfast.ErrInvalid] for an owner that is not valid. The Register of New
// has no owner, and is for a DB with holdfast.Options.SingleOwner, where no owner is named.
func (r *Register[Tx]) For(owner string) *Register[Tx] {
	of := *r
	of.owner = r.work.Access.Owners.Owner(owner)
	return &of
}

// args returns the arguments of a statement on a name.
func (r *Register[Tx]) args(name string, more ...any) []any {
	return append([]any{r.owner.ID, []byte(name)}, more...)
}

// Get reads the value of name with one statement. With [ErrNotFound] the returned
// Entry holds the revision of the deletion, or 0: watch from there.
//
// Errors: [ErrNotFound], [holdfast.ErrInvalid], [holdfast.ErrRetry], the error of ctx, the driver's.
func (r *Register[Tx]) Get(ctx context.Context, name string) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.get")
	defer func() { span.End(err, work.Outcome) }()
	if err := r.checkName(name); err != nil {
		return Entry{}, err
	}
	err = r.work.Read(ctx, func(q core.Querier) error {
		out, err = r.entry(ctx, q, r.read, name)
		return err
	})
	return out, err
}

// GetTx is [Register.Get] in the caller's transaction. The transaction goes on when
// the name has no value. The value is as old as the transaction's snapshot.
//
// Errors: those of [Register.Get], and [holdfast.ErrRetry].
func (r *Register[Tx]) GetTx(ctx context.Context, tx Tx, name string) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.get_tx")
	defer func() { span.End(err, work.Outcome) }()
	if err := r.checkName(name); err != nil {
		return Entry{}, err
	}
	q, err := r.work.Access.Join(tx)
	if err != nil {
		return Entry{}, err
	}
	e, err := r.entry(ctx, q, r.read, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = r.work.Undo(ctx, tx, err)
	}
	return e, err
}

// Create gives name its value, if it has none, in its own transaction, and
// returns the value with its revision. A nil value is stored as an empty one.
//
// Errors: [ErrConflict] when the name has a value; [holdfast.ErrInvalid];
// [holdfast.ErrUnknown]; [holdfast.ErrRetry]; the error of ctx; the driver's.
func (r *Register[Tx]) Create(ctx context.Context, name string, value []byte) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.create")
	defer func() { span.End(err, work.Outcome) }()
	if err := r.checkEntry(name, value); err != nil {
		return Entry{}, err
	}
	// A plain read first, so that a name that has a value costs no write.
	switch there, err := r.entry(ctx, r.work.Access.Pool, r.read, name); {
	case err == nil:
		return Entry{}, conflict(there, 0)
	case !errors.Is(err, ErrNotFound):
		return Entry{}, err
	}
	return work.InTx(ctx, &r.work, func(ctx context.Context, tx Tx) (Entry, error) { return r.CreateTx(ctx, tx, name, value) })
}

// CreateTx is [Register.Create] in the caller's transaction. After every error but
// [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (r *Register[Tx]) CreateTx(ctx context.Context, tx Tx, name string, value []byte) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.create_tx")
	defer func() { span.End(err, work.Outcome) }()
	if err := r.checkEntry(name, value); err != nil {
		return Entry{}, err
	}
	return r.join(ctx, tx, func(q core.Querier) (Entry, error) { return r.createOn(ctx, q, name, value) })
}

// createOn makes the row first, even if it may exist: a locking read of a row that
// does not exist would lock a gap, in which two transactions wait for each other.
func (r *Register[Tx]) createOn(ctx context.Context, q core.Querier, name string, value []byte) (Entry, error) {
	if _, err := r.makeRow.Exec(ctx, q, r.args(name)...); err != nil {
		return Entry{}, &WriteError{name, err}
	}
	for {
		created, err := r.create.Exec(ctx, q, r.args(name, notNil(value))...)
		if err != nil {
			return Entry{}, &WriteError{name, err}
		}
		e, err := r.entry(ctx, q, r.readLocked, name)
		switch {
		case err == nil && created.Affected == 1:
			return e, nil
		case err == nil:
			return Entry{}, conflict(e, 0)
		case !errors.Is(err, ErrNotFound):
			return Entry{}, err
		}
		// The value that made create change nothing was deleted in between.
	}
}

// CompareAndSwap replaces the value of name if its revision is the one given, in a
// separate transaction, and returns the new value with its revision. The revision
// goes up also if the value stays the same.
//
// After [holdfast.ErrUnknown] read the value again. A higher revision may come from
// another writer, unless the value says who wrote it.
//
// Errors: [ErrConflict]; [ErrNotFound] when the name has no value (use
// [Register.Create]); both when the value was deleted after that revision;
// [holdfast.ErrInvalid] (a revision below 1 included); [holdfast.ErrUnknown];
// [holdfast.ErrRetry]; the error of ctx; the driver's.
func (r *Register[Tx]) CompareAndSwap(ctx context.Context, name string, revision int64, value []byte) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.compare_and_swap")
	defer func() { span.End(err, work.Outcome) }()
	return work.InTx(ctx, &r.work, func(ctx context.Context, tx Tx) (Entry, error) {
		return r.CompareAndSwapTx(ctx, tx, name, revision, value)
	})
}

// CompareAndSwapTx is [Register.CompareAndSwap] in the caller's transaction. After
// every error but [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (r *Register[Tx]) CompareAndSwapTx(ctx context.Context, tx Tx, name string, revision int64, value []byte) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.compare_and_swap_tx")
	defer func() { span.End(err, work.Outcome) }()
	if err := r.checkEntry(name, value); err != nil {
		return Entry{}, err
	}
	return r.change(ctx, tx, r.swap, Entry{name, notNil(value), revision}, notNil(value))
}

// Delete deletes the value of name if its revision is the one given, in a
// separate transaction, and returns the name with the revision of the deletion.
//
// Errors: those of [Register.CompareAndSwap].
func (r *Register[Tx]) Delete(ctx context.Context, name string, revision int64) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.delete")
	defer func() { span.End(err, work.Outcome) }()
	return work.InTx(ctx, &r.work, func(ctx context.Context, tx Tx) (Entry, error) { return r.DeleteTx(ctx, tx, name, revision) })
}

// DeleteTx is [Register.Delete] in the caller's transaction. After every error but
// [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (r *Register[Tx]) DeleteTx(ctx context.Context, tx Tx, name string, revision int64) (out Entry, err error) {
	ctx, span := r.work.StartSpan(ctx, "register.delete_tx")
	defer func() { span.End(err, work.Outcome) }()
	if err := r.checkName(name); err != nil {
		return Entry{}, err
	}
	return r.change(ctx, tx, r.remove, Entry{Name: name, Revision: revision})
}

// change runs a write that changes the name if it has the revision given, and changes nothing
// otherwise.
func (r *Register[Tx]) change(ctx context.Context, tx Tx, stmt core.Stmt, e Entry, args ...any) (Entry, error) {
	if e.Revision <= 0 {
		return Entry{}, invalid("revision", fmt.Sprintf("%d was never read: give the revision that Get returned, or use Create for a name without a value", e.Revision))
	}
	return r.join(ctx, tx, func(q core.Querier) (Entry, error) {
		done, err := stmt.Exec(ctx, q, r.args(e.Name, append([]any{e.Revision}, args...)...)...)
		if err != nil {
			return Entry{}, &WriteError{e.Name, err}
		}
		if done.Affected == 1 {
			e.Revision++
			return e, nil
		}
		there, err := r.entry(ctx, q, r.readLocked, e.Name)
		switch {
		case err == nil:
			err = conflict(there, e.Revision)
		case errors.Is(err, ErrNotFound) && there.Revision > e.Revision:
			err = &ConflictError{Name: e.Name, Given: e.Revision, Found: there.Revision, Deleted: true}
		}
		return Entry{}, err
	})
}

func (r *Register[Tx]) join(ctx context.Context, tx Tx, f func(q core.Querier) (Entry, error)) (Entry, error) {
	q, err := r.work.Access.Join(tx)
	if err != nil {
		return Entry{}, err
	}
	e, err := f(q)
	if err != nil {
		return Entry{}, r.work.Undo(ctx, tx, err)
	}
	return e, nil
}

// entry reads the value of name. With ErrNotFound it returns the revision.
func (r *Register[Tx]) entry(ctx context.Context, q core.Querier, stmt core.Stmt, name string) (Entry, error) {
	e, found, err := r.scan(ctx, q, stmt, name)
	if err == nil && (!found || e.Value == nil) {
		err = &NotFoundError{name}
	}
	return e, err
}

// scan runs a read of one name. The Entry's value is nil where there is none.
func (r *Register[Tx]) scan(ctx context.Context, q core.Querier, stmt core.Stmt, name string, args ...any) (e Entry, found bool, err error) {
	e.Name = name
	deleted := 0
	found, err = stmt.QueryRow(ctx, q, []any{&e.Revision, &deleted, &e.Value}, r.args(name, args...)...)
	switch {
	case err != nil:
		return Entry{}, false, err
	case found && deleted == 0:
		e.Value = notNil(e.Value)
	}
	return e, found, nil
}

func conflict(there Entry, given int64) error {
	return &ConflictError{Name: there.Name, Given: given, Found: there.Revision}
}

// notNil turns nil into an empty value: NULL is the value of a deleted name.
func notNil(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func (r *Register[Tx]) checkName(name string) error {
	if name == "" || len(name) > MaxName {
		return invalid("name", fmt.Sprintf("has %d bytes: use 1 to %d", len(name), MaxName))
	}
	return r.owner.Err
}

func (r *Register[Tx]) checkEntry(name string, value []byte) error {
	if err := r.checkName(name); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return invalid("value", fmt.Sprintf("has %d bytes, and may have up to %d: keep larger values in a table of your own", len(value), MaxValue))
	}
	return nil
}

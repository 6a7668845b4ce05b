package optimistic

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
)

// The bounds of a [Register].
const (
	// MaxRegisterName is the longest name, in bytes.
	MaxRegisterName = 1024
	// MaxRegisterValue is the longest value, in bytes.
	MaxRegisterValue = 64 << 10
)

// Entry is a named value as it was read or written.
type Entry struct {
	// Name is the exact bytes: case, accents and trailing blanks count.
	Name string
	// Value is nil where there is none, and not nil where it is empty.
	Value []byte
	// Revision goes up by one with each change of the name, deletions included,
	// and never back. 0 is a name that never had a value.
	Revision int64
}

// Register keeps named values that are changed by compare-and-swap: a setting, a
// cursor, who leads. It has a table of its own. Each name is linearizable: its
// changes happen one after the other, and a Get that begins after a change has
// returned sees it. It is safe for concurrent use.
//
// A deleted name keeps its row without the value (about 50 bytes and the name),
// because its revision must not go back: names are for things that come again,
// not for one message each.
type Register[Tx any] struct {
	work[Tx]

	table string

	look, newer, locked, create, fill, swap, remove core.Stmt
}

// NewRegister opens the register of db.
//
// Errors: [holdfast.ErrSchema] when Holdfast's tables are missing, ctx's, the
// driver's.
func NewRegister[Tx any](ctx context.Context, db *holdfast.DB[Tx]) (*Register[Tx], error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	if err := db.CheckSchema(ctx); err != nil {
		return nil, err
	}
	r := &Register[Tx]{work: workOn(db)}
	r.table = r.access.Table("registers")
	d := r.access.Dialect
	texts := strings.NewReplacer("{registers}", r.table, "{now}", d.Now)
	stmt := func(name, text string) core.Stmt { return d.Compile("register."+name, texts.Replace(text)) }
	r.look, r.newer, r.locked = stmt("look", d.Register.Look), stmt("newer", d.Register.Newer), stmt("locked", d.Register.Locked)
	r.create, r.fill = stmt("make", d.Register.Make), stmt("create", d.Register.Create)
	r.swap, r.remove = stmt("swap", d.Register.Swap), stmt("delete", d.Register.Delete)
	return r, nil
}

// Get reads the value of name: one statement. With [ErrNotFound] the Entry has
// the revision of its deletion, to watch from, or 0.
//
// Errors: [ErrNotFound], [holdfast.ErrInvalid], ctx's, the driver's.
func (r *Register[Tx]) Get(ctx context.Context, name string) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.get")
	defer func() { span.End(err, outcome) }()
	if err := checkName(name); err != nil {
		return Entry{}, err
	}
	return r.read(ctx, r.access.Pool, r.look, name)
}

// GetTx is [Register.Get] in the caller's transaction, which stays as it is when
// there is no such value. What it reads is as old as the transaction's snapshot.
//
// Errors: as of [Register.Get], and [holdfast.ErrRetry].
func (r *Register[Tx]) GetTx(ctx context.Context, tx Tx, name string) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.get_tx")
	defer func() { span.End(err, outcome) }()
	if err := checkName(name); err != nil {
		return Entry{}, err
	}
	q, err := r.access.Join(tx)
	if err != nil {
		return Entry{}, err
	}
	e, err := r.read(ctx, q, r.look, name)
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = r.undo(ctx, tx, err)
	}
	return e, err
}

// Create gives name a value, where it has none, in a transaction of its own, and
// returns it with its revision. A nil value is an empty one.
//
// Errors: [ErrConflict] when there is a value ([ConflictError.Given] is "0");
// [holdfast.ErrInvalid], [holdfast.ErrUnknown], [holdfast.ErrRetry], ctx's, the
// driver's.
func (r *Register[Tx]) Create(ctx context.Context, name string, value []byte) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.create")
	defer func() { span.End(err, outcome) }()
	if err := checkEntry(name, value); err != nil {
		return Entry{}, err
	}
	// Those who come too late write nothing.
	switch there, err := r.read(ctx, r.access.Pool, r.look, name); {
	case err == nil:
		return Entry{}, r.conflict(there, 0)
	case !errors.Is(err, ErrNotFound):
		return Entry{}, err
	}
	return own(ctx, r.work, func(ctx context.Context, tx Tx) (Entry, error) { return r.CreateTx(ctx, tx, name, value) })
}

// CreateTx is [Register.Create] in the caller's transaction. After every error
// but [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (r *Register[Tx]) CreateTx(ctx context.Context, tx Tx, name string, value []byte) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.create_tx")
	defer func() { span.End(err, outcome) }()
	if err := checkEntry(name, value); err != nil {
		return Entry{}, err
	}
	return r.join(ctx, tx, func(q core.Querier) (Entry, error) {
		// The row first, whoever made it: a locking read of one that is not
		// there would lock a gap, in which two of these wait for each other.
		if _, err := r.create.Exec(ctx, q, []byte(name)); err != nil {
			return Entry{}, r.failed(name, err)
		}
		for {
			filled, err := r.fill.Exec(ctx, q, []byte(name), present(value))
			if err != nil {
				return Entry{}, r.failed(name, err)
			}
			e, err := r.read(ctx, q, r.locked, name)
			switch {
			case err == nil && filled.Affected == 1:
				return e, nil
			case err == nil:
				return Entry{}, r.conflict(e, 0)
			case !errors.Is(err, ErrNotFound):
				return Entry{}, err
			}
			// It was there when it was to be created, and was deleted since.
		}
	})
}

// CompareAndSwap replaces the value of name where its revision is the one given,
// in a transaction of its own, and returns the new one. The revision moves also
// where the value stays the same.
//
// After [holdfast.ErrUnknown] read again: a revision that moved may have been
// moved by somebody else, unless the value says who wrote it.
//
// Errors: [ErrConflict], [ErrNotFound] (never there, or deleted: [Register.Create]
// makes it), [holdfast.ErrInvalid] (a revision below 1 is never "without the
// check"), [holdfast.ErrUnknown], [holdfast.ErrRetry], ctx's, the driver's.
func (r *Register[Tx]) CompareAndSwap(ctx context.Context, name string, revision int64, value []byte) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.compare_and_swap")
	defer func() { span.End(err, outcome) }()
	return own(ctx, r.work, func(ctx context.Context, tx Tx) (Entry, error) {
		return r.CompareAndSwapTx(ctx, tx, name, revision, value)
	})
}

// CompareAndSwapTx is [Register.CompareAndSwap] in the caller's transaction.
// After every error but [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (r *Register[Tx]) CompareAndSwapTx(ctx context.Context, tx Tx, name string, revision int64, value []byte) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.compare_and_swap_tx")
	defer func() { span.End(err, outcome) }()
	if err := checkEntry(name, value); err != nil {
		return Entry{}, err
	}
	return r.change(ctx, tx, r.swap, Entry{name, present(value), revision}, present(value))
}

// Delete deletes the value of name where its revision is the one given, in a
// transaction of its own, and returns the name with the revision of the deletion.
//
// Errors: as of [Register.CompareAndSwap].
func (r *Register[Tx]) Delete(ctx context.Context, name string, revision int64) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.delete")
	defer func() { span.End(err, outcome) }()
	return own(ctx, r.work, func(ctx context.Context, tx Tx) (Entry, error) { return r.DeleteTx(ctx, tx, name, revision) })
}

// DeleteTx is [Register.Delete] in the caller's transaction. After every error
// but [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (r *Register[Tx]) DeleteTx(ctx context.Context, tx Tx, name string, revision int64) (out Entry, err error) {
	ctx, span := r.tell(ctx, "register.delete_tx")
	defer func() { span.End(err, outcome) }()
	if err := checkName(name); err != nil {
		return Entry{}, err
	}
	return r.change(ctx, tx, r.remove, Entry{Name: name, Revision: revision})
}

// change runs a write that touches the name in the revision given, or nothing.
func (r *Register[Tx]) change(ctx context.Context, tx Tx, stmt core.Stmt, e Entry, args ...any) (Entry, error) {
	if e.Revision <= 0 {
		return Entry{}, invalid("revision", fmt.Sprintf("%d is none that was read; use Create for a name without a value", e.Revision))
	}
	return r.join(ctx, tx, func(q core.Querier) (Entry, error) {
		done, err := stmt.Exec(ctx, q, append([]any{[]byte(e.Name), e.Revision}, args...)...)
		if err != nil {
			return Entry{}, r.failed(e.Name, err)
		}
		if done.Affected == 1 {
			e.Revision++
			return e, nil
		}
		there, err := r.read(ctx, q, r.locked, e.Name)
		if err == nil {
			err = r.conflict(there, e.Revision)
		}
		return Entry{}, err
	})
}

func (r *Register[Tx]) join(ctx context.Context, tx Tx, f func(q core.Querier) (Entry, error)) (Entry, error) {
	q, err := r.access.Join(tx)
	if err != nil {
		return Entry{}, err
	}
	e, err := f(q)
	if err != nil {
		return Entry{}, r.undo(ctx, tx, err)
	}
	return e, nil
}

// read finds the value of name, or its revision and that it is not there.
func (r *Register[Tx]) read(ctx context.Context, q core.Querier, stmt core.Stmt, name string) (Entry, error) {
	e, gone := Entry{Name: name}, 0
	found, err := stmt.QueryRow(ctx, q, []any{&e.Revision, &gone, &e.Value}, []byte(name))
	switch {
	case err != nil:
		return Entry{}, err
	case !found || gone == 1:
		return e, &NotFoundError{Table: r.table, Key: []any{name}}
	}
	e.Value = present(e.Value)
	return e, nil
}

func (r *Register[Tx]) failed(name string, err error) error {
	return &RowError{Table: r.table, Key: []any{name}, Err: err}
}

func (r *Register[Tx]) conflict(there Entry, given int64) error {
	return &ConflictError{Table: r.table, Key: []any{there.Name}, Given: version{n: given}.String(), Found: version{n: there.Revision}.String()}
}

// present is an empty value for none: NULL is a deleted one.
func present(value []byte) []byte {
	if value == nil {
		return []byte{}
	}
	return value
}

func checkName(name string) error {
	if name == "" || len(name) > MaxRegisterName {
		return invalid("name", fmt.Sprintf("has %d bytes, and may have 1 to %d", len(name), MaxRegisterName))
	}
	return nil
}

func checkEntry(name string, value []byte) error {
	if err := checkName(name); err != nil {
		return err
	}
	if len(value) > MaxRegisterValue {
		return invalid("value", fmt.Sprintf("has %d bytes, and may have up to %d: keep what is larger in a table of its own", len(value), MaxRegisterValue))
	}
	return nil
}

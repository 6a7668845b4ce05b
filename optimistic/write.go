package optimistic

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/rowmap"
	"github.com/holdfast-go/holdfast/optimistic/internal/work"
)

// Get reads the row that has the key of row. Only the key fields of row matter.
//
// Errors: [ErrNotFound], [holdfast.ErrRetry], the error of ctx, the driver's.
func (t *Table[R, Tx]) Get(ctx context.Context, row R) (out R, err error) {
	ctx, span := t.work.StartSpan(ctx, "version.get")
	defer func() { span.End(err, outcome) }()
	err = t.work.Read(ctx, func(q core.Querier) error {
		out, err = t.get(ctx, q, row)
		return err
	})
	return out, err
}

// GetTx is [Table.Get] in the caller's transaction, which goes on when the row does not
// exist.
//
// Errors: [ErrNotFound], [holdfast.ErrRetry], the error of ctx, the driver's.
func (t *Table[R, Tx]) GetTx(ctx context.Context, tx Tx, row R) (out R, err error) {
	ctx, span := t.work.StartSpan(ctx, "version.get_tx")
	defer func() { span.End(err, outcome) }()
	q, err := t.work.Access.Join(tx)
	if err != nil {
		return *new(R), err
	}
	there, err := t.get(ctx, q, row)
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = t.undo(ctx, tx, err)
	}
	return there, err
}

func (t *Table[R, Tx]) get(ctx context.Context, q core.Querier, row R) (there R, err error) {
	v := reflect.ValueOf(&there).Elem()
	now := reading{counter: t.version}
	dest := t.table.Fields.Dest(v)
	dest[slices.Index(t.table.Fields.Names(), t.column)] = &now
	key := t.table.KeyFields.Values(reflect.ValueOf(row), t.forms)
	found, err := t.read.QueryRow(ctx, q, dest, key...)
	switch {
	case err != nil:
		return *new(R), err
	case !found:
		return *new(R), &NotFoundError{Table: t.spec.Table, Key: key}
	}
	t.version.put(v, now.version)
	return there, nil
}

// Insert inserts row in its own transaction and returns it with its version: the
// one that row has, otherwise 1 or a new UUID. The caller sets the key. An empty key is
// refused, because a key that the database generates is not read back.
//
// Errors: [ErrDuplicate], [holdfast.ErrInvalid], [holdfast.ErrUnknown],
// [holdfast.ErrRetry], the error of ctx, the driver's.
func (t *Table[R, Tx]) Insert(ctx context.Context, row R) (out R, err error) {
	ctx, span := t.work.StartSpan(ctx, "version.insert")
	defer func() { span.End(err, outcome) }()
	return work.InTx(ctx, &t.work, func(ctx context.Context, tx Tx) (R, error) { return t.InsertTx(ctx, tx, row) })
}

// InsertTx is [Table.Insert] in the caller's transaction. After every error but
// [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (t *Table[R, Tx]) InsertTx(ctx context.Context, tx Tx, row R) (out R, err error) {
	ctx, span := t.work.StartSpan(ctx, "version.insert_tx")
	defer func() { span.End(err, outcome) }()
	v := reflect.ValueOf(&row).Elem()
	first, err := t.version.first(v)
	if err == nil && t.emptyKey(v) {
		err = invalid("row", "its key is empty: a key that the database generates is not read back; insert such a row with a statement of your own, with version 1")
	}
	if err == nil {
		err = t.given.Fill(ctx, v, false)
	}
	if err != nil {
		return *new(R), err
	}
	values := t.given.Values(v, t.forms)
	values[slices.Index(t.given.Names(), t.column)] = t.version.bind(first)
	return t.join(ctx, tx, row, first, func(q core.Querier) error {
		_, err := t.insert.Exec(ctx, q, values...)
		key := t.table.KeyFields.Values(v, t.forms)
		switch {
		case err == nil:
			return nil
		case t.work.Access.Dialect.Classify(err) == dialect.Duplicate:
			return &DuplicateError{Table: t.spec.Table, Key: key, Err: err}
		}
		return &RowError{Table: t.spec.Table, Key: key, Err: err}
	})
}

func (t *Table[R, Tx]) emptyKey(row reflect.Value) bool {
	return !slices.ContainsFunc(t.table.KeyFields, func(f rowmap.Field) bool { return !f.Of(row).IsZero() })
}

// Update writes row in its own transaction and returns it with its new version.
// Give the row as it was read, with the changes. Update writes only the columns named,
// or all but the key if none is named. It always changes the version.
//
// Errors: [ErrConflict], [ErrNotFound], [holdfast.ErrInvalid],
// [holdfast.ErrUnknown], [holdfast.ErrRetry], the error of ctx, the driver's.
func (t *Table[R, Tx]) Update(ctx context.Context, row R, columns ...string) (out R, err error) {
	ctx, span := t.work.StartSpan(ctx, "version.update")
	defer func() { span.End(err, outcome) }()
	return work.InTx(ctx, &t.work, func(ctx context.Context, tx Tx) (R, error) { return t.UpdateTx(ctx, tx, row, columns...) })
}

// UpdateTx is [Table.Update] in the caller's transaction. After every error but
// [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (t *Table[R, Tx]) UpdateTx(ctx context.Context, tx Tx, row R, columns ...string) (out R, err error) {
	ctx, span := t.work.StartSpan(ctx, "version.update_tx")
	defer func() { span.End(err, outcome) }()
	v := reflect.ValueOf(&row).Elem()
	fields, stmt, err := t.pick(columns)
	if err != nil {
		return *new(R), err
	}
	given, err := t.version.of(v)
	if err != nil {
		return *new(R), err
	}
	next, err := t.version.after(given)
	if err == nil {
		err = fields.Fill(ctx, v, true)
	}
	if err != nil {
		return *new(R), err
	}
	set := append(fields.Values(v, nil), t.version.bind(next))
	return t.join(ctx, tx, row, next, func(q core.Querier) error {
		return t.write(ctx, q, stmt, set, v, given)
	})
}

func (t *Table[R, Tx]) pick(columns []string) (rowmap.Fields, core.Stmt, error) {
	if len(columns) == 0 {
		return t.values, t.update, nil
	}
	for i, c := range columns {
		switch {
		case c == t.column, slices.Contains(t.spec.Key, c):
			return nil, core.Stmt{}, invalid("columns", fmt.Sprintf("%q is the version or a column of the key: Update changes the version by itself, and never the key", c))
		case slices.Contains(columns[:i], c):
			return nil, core.Stmt{}, invalid("columns", fmt.Sprintf("%q is named twice", c))
		}
	}
	fields, err := t.values.Pick("columns", columns)
	if err != nil {
		return nil, core.Stmt{}, err
	}
	return fields, t.updateOf(fields), nil
}

// Delete deletes row in its own transaction, if it still has the version that was
// read.
//
// Errors: those of [Table.Update].
func (t *Table[R, Tx]) Delete(ctx context.Context, row R) (err error) {
	ctx, span := t.work.StartSpan(ctx, "version.delete")
	defer func() { span.End(err, outcome) }()
	_, err = work.InTx(ctx, &t.work, func(ctx context.Context, tx Tx) (R, error) { return row, t.DeleteTx(ctx, tx, row) })
	return err
}

// DeleteTx is [Table.Delete] in the caller's transaction. After every error but
// [holdfast.ErrInvalid] Holdfast has rolled tx back.
func (t *Table[R, Tx]) DeleteTx(ctx context.Context, tx Tx, row R) (err error) {
	ctx, span := t.work.StartSpan(ctx, "version.delete_tx")
	defer func() { span.End(err, outcome) }()
	v := reflect.ValueOf(&row).Elem()
	given, err := t.version.of(v)
	if err != nil {
		return err
	}
	_, err = t.join(ctx, tx, row, given, func(q core.Querier) error {
		return t.write(ctx, q, t.remove, nil, v, given)
	})
	return err
}

// write runs a statement that changes the row if it has the version given, and changes nothing
// otherwise.
func (t *Table[R, Tx]) write(ctx context.Context, q core.Querier, stmt core.Stmt, set []any, row reflect.Value, given version) error {
	key := t.table.KeyFields.Values(row, t.forms)
	r, err := stmt.Exec(ctx, q, slices.Concat(set, key, []any{t.version.bind(given)})...)
	switch {
	case err != nil:
		return &RowError{Table: t.spec.Table, Key: key, Err: err}
	case r.Affected == 1:
		return nil
	case r.Affected > 1:
		return fmt.Errorf("optimistic: table %s: %d rows have one key: the unique index that was there is gone", t.spec.Table, r.Affected)
	}
	now := reading{counter: t.version}
	found, err := t.readVersion.QueryRow(ctx, q, []any{&now}, key...)
	switch {
	case err != nil:
		return err
	case !found:
		return &NotFoundError{Table: t.spec.Table, Key: key}
	}
	return &ConflictError{Table: t.spec.Table, Key: key, Given: given.String(), Found: now.version.String()}
}

// join runs f in the caller's transaction and returns row with its version. An error of
// f rolls the transaction back.
func (t *Table[R, Tx]) join(ctx context.Context, tx Tx, row R, now version, f func(q core.Querier) error) (R, error) {
	q, err := t.work.Access.Join(tx)
	if err != nil {
		return *new(R), err
	}
	if err := f(q); err != nil {
		return *new(R), t.undo(ctx, tx, err)
	}
	t.version.put(reflect.ValueOf(&row).Elem(), now)
	return row, nil
}

// undo rolls tx back after err. It returns err, as an ErrConflict if a trigger refused the
// update, and within a holdfast.RetryError if a new transaction may succeed.
func (t *Table[R, Tx]) undo(ctx context.Context, tx Tx, err error) error {
	return t.work.Undo(ctx, tx, AsConflict(t.work.DB, err))
}

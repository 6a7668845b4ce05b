package stdhandle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"
)

// implicit is a transaction that begins with its first statement.
type implicit struct {
	k    *keeping
	life context.Context // COMMIT ends with it
	lost error

	seen
	marked bool  // the savepoint is set that proves it
	again  error // of Kept.Again, once it was asked
}

// intact implements core.Keeper's Intact.
func (k *keeping) intact() (intact bool, again error) {
	t := k.tx
	switch {
	case t == nil || k.raw:
		return false, nil
	case t.again == nil && t.lost == nil && t.doubtful && !t.marked && k.kept.Mark != "":
		t.again = k.kept.Again(t.doubt)
	}
	return t.lost == nil && !t.doubtful, t.again
}

// Commit implements driver.Tx.
func (t *implicit) Commit() error { return t.end(t.life, `COMMIT`) }

// Rollback implements driver.Tx.
func (t *implicit) Rollback() error { return t.end(context.WithoutCancel(t.life), `ROLLBACK`) }

func (t *implicit) end(ctx context.Context, text string) error {
	if t.k.tx != t {
		return sql.ErrTxDone
	}
	t.k.tx = nil
	return t.k.run(ctx, text)
}

// alive reports whether the transaction of the program's that runs is surely the one that began.
func (k *keeping) alive() bool { return k.program != nil && !k.program.doubtful && !k.raw }

// Unwrap returns the driver's own connection, for programs that use [sql.Conn.Raw]. What they send on it is not
// seen here.
func (k *keeping) Unwrap() driver.Conn {
	k.raw = true
	return k.Conn
}

// running is the transaction that runs, Holdfast's or the program's; nil for none.
func (k *keeping) running() *seen {
	if k.tx != nil {
		return &k.tx.seen
	}
	return k.program
}

// seen is what a connection has seen of a transaction.
type seen struct {
	doubtful bool  // a statement, or an error, may have ended it
	doubt    error // the last such error
}

// watch returns rows that see the errors which come after the first row was asked for.
func (k *keeping) watch(rows driver.Rows, err error) (driver.Rows, error) {
	tx := k.running()
	if err != nil || tx == nil {
		return rows, err
	}
	return &watched{rows, k, tx}, nil
}

// watched are the rows of a query in a transaction.
type watched struct {
	driver.Rows

	k  *keeping
	tx *seen
}

func (r *watched) see(err error) error {
	if err != nil && err != io.EOF && r.k.running() == r.tx { //nolint:errorlint // drivers return it as it is
		r.k.after(err)
	}
	return err
}

// Next implements driver.Rows.
func (r *watched) Next(dest []driver.Value) error { return r.see(r.Rows.Next(dest)) }

// Close implements driver.Rows.
func (r *watched) Close() error { return r.see(r.Rows.Close()) }

// HasNextResultSet implements driver.RowsNextResultSet.
func (r *watched) HasNextResultSet() bool {
	more, can := r.Rows.(driver.RowsNextResultSet)
	return can && more.HasNextResultSet()
}

// NextResultSet implements driver.RowsNextResultSet.
func (r *watched) NextResultSet() error {
	if more, can := r.Rows.(driver.RowsNextResultSet); can {
		return r.see(more.NextResultSet())
	}
	return io.EOF
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType, with the default of database/sql.
func (r *watched) ColumnTypeScanType(index int) reflect.Type {
	if typed, can := r.Rows.(driver.RowsColumnTypeScanType); can {
		return typed.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r *watched) ColumnTypeDatabaseTypeName(index int) string {
	if typed, can := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); can {
		return typed.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

// ColumnTypeLength implements driver.RowsColumnTypeLength.
func (r *watched) ColumnTypeLength(index int) (length int64, ok bool) {
	if typed, can := r.Rows.(driver.RowsColumnTypeLength); can {
		return typed.ColumnTypeLength(index)
	}
	return 0, false
}

// ColumnTypeNullable implements driver.RowsColumnTypeNullable.
func (r *watched) ColumnTypeNullable(index int) (nullable, ok bool) {
	if typed, can := r.Rows.(driver.RowsColumnTypeNullable); can {
		return typed.ColumnTypeNullable(index)
	}
	return false, false
}

// ColumnTypePrecisionScale implements driver.RowsColumnTypePrecisionScale.
func (r *watched) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if typed, can := r.Rows.(driver.RowsColumnTypePrecisionScale); can {
		return typed.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}

// late is a transaction whose BEGIN is sent with its first statement, and whose COMMIT may be sent with
// its last.
type late struct {
	driver.Tx // nil before that

	begun     bool // database/sql has it
	committed bool
	err       error // of the COMMIT
}

// Commit implements driver.Tx.
func (t *late) Commit() error {
	if t.committed || t.Tx == nil {
		return t.err
	}
	return t.Tx.Commit()
}

// Rollback implements driver.Tx.
func (t *late) Rollback() error {
	if t.committed || t.Tx == nil {
		return t.err
	}
	return t.Tx.Rollback()
}

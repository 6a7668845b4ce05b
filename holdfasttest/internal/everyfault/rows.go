package everyfault

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

type statement struct {
	driver.Stmt

	c     *Conn
	query string
}

// Close implements driver.Stmt.
func (s statement) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.Stmt.Close()
}

// ExecContext implements driver.StmtExecContext.
func (s statement) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.c.do(s.query, func() (err error) { //nolint:contextcheck // a killed process has none
		r, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) //nolint:forcetypeassert // each driver of Holdfast implements it
		return err
	})
	return r, err
}

// QueryContext implements driver.StmtQueryContext.
func (s statement) QueryContext(ctx context.Context, args []driver.NamedValue) (r driver.Rows, err error) {
	err = s.c.do(s.query, func() (err error) { //nolint:contextcheck // a killed process has none
		got, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) //nolint:forcetypeassert // each driver of Holdfast implements it
		r, err = s.c.watch(got, nil, err)
		return err
	})
	return r, err
}

type rows struct {
	driver.Rows

	stmt driver.Stmt
	c    *Conn
}

// Next implements driver.Rows.
func (r *rows) Next(to []driver.Value) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.c.lost {
		return ErrLost
	}
	return r.Rows.Next(to)
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	for i, open := range r.c.rows {
		if open != r {
			continue
		}
		r.c.rows = append(r.c.rows[:i:i], r.c.rows[i+1:]...)
		err := r.Rows.Close()
		if r.stmt != nil {
			err = errors.Join(err, r.stmt.Close())
		}
		return err
	}
	return nil
}

// HasNextResultSet implements driver.RowsNextResultSet.
func (r *rows) HasNextResultSet() bool {
	more, can := r.Rows.(driver.RowsNextResultSet)
	return can && more.HasNextResultSet()
}

// NextResultSet implements driver.RowsNextResultSet.
func (r *rows) NextResultSet() error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	more, can := r.Rows.(driver.RowsNextResultSet)
	switch {
	case r.c.lost:
		return ErrLost
	case !can:
		return io.EOF
	}
	return more.NextResultSet()
}

// ColumnTypeDatabaseTypeName implements driver.RowsColumnTypeDatabaseTypeName.
func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if types, can := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); can {
		return types.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

// ColumnTypeScanType implements driver.RowsColumnTypeScanType.
func (r *rows) ColumnTypeScanType(i int) reflect.Type {
	if types, can := r.Rows.(driver.RowsColumnTypeScanType); can {
		return types.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

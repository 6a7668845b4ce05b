package kit

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
)

// Cleaner is a Server whose schemas can be made as they were.
type Cleaner interface {
	Server
	// Objects is a query for what stands in the schema of the connection, each as DROP wants it.
	Objects() string
	// Mark is the placeholder of the n-th argument, from 1.
	Mark(n int) string
}

// Fresh is a schema that is used again and again: to make Holdfast's tables takes a server longer than
// most tests.
type Fresh struct {
	Name string

	server Cleaner
	pool   *sql.DB
	tables []table
	own    map[string]bool // its objects
}

type table struct {
	name string
	rows [][]any
}

// NewFresh makes a schema with Holdfast's tables. pool is one in the schema; it is dropped when the test ends.
func NewFresh(tb TB, server Cleaner, open func(name string) (*sql.DB, error)) (*Fresh, *sql.DB) {
	tb.Helper()
	made, err := create(server, nil)
	if err != nil {
		tb.Fatalf("holdfasttest: a schema with Holdfast's tables: %v", err)
	}
	tb.Cleanup(func() {
		if err := made.drop(); err != nil {
			tb.Fatalf("holdfasttest: %v", err)
		}
	})
	f := &Fresh{Name: made.name, server: server}
	if f.pool, err = open(made.name); err == nil {
		tb.Cleanup(func() { _ = f.pool.Close() })
		err = f.remember(context.Background())
	}
	if err != nil {
		tb.Fatalf("holdfasttest: %v", err)
	}
	return f, f.pool
}

func (f *Fresh) remember(ctx context.Context) error {
	names, err := column(ctx, f.pool, `SELECT table_name FROM information_schema.tables WHERE table_schema = `+f.server.Mark(1)+` AND table_type = 'BASE TABLE'`, f.Name)
	if err != nil {
		return err
	}
	for _, name := range names {
		t := table{name: name}
		if t.rows, err = rowsOf(ctx, f.pool, `SELECT * FROM `+name); err != nil {
			return err
		}
		f.tables = append(f.tables, t)
	}
	objects, err := column(ctx, f.pool, f.server.Objects())
	f.own = map[string]bool{}
	for _, object := range objects {
		f.own[object] = true
	}
	return err
}

// Restore makes the schema what it was.
func (f *Fresh) Restore() error {
	ctx := context.Background()
	c, err := f.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	objects, err := column(ctx, c, f.server.Objects())
	if err != nil {
		return err
	}
	for _, object := range objects {
		if f.own[object] {
			continue
		}
		if _, err := c.ExecContext(ctx, "DROP "+object); err != nil {
			return err
		}
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var all strings.Builder // in one round trip
	for _, t := range f.tables {
		all.WriteString("DELETE FROM " + t.name + ";")
	}
	if _, err := tx.ExecContext(ctx, all.String()); err != nil {
		return err
	}
	for _, t := range f.tables {
		for _, row := range t.rows {
			marks := make([]string, len(row))
			for i := range marks {
				marks[i] = f.server.Mark(i + 1)
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO "+t.name+" VALUES ("+strings.Join(marks, ", ")+")", row...); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}

// querier is a *sql.DB or a *sql.Conn.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func column(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	rows, err := rowsOf(ctx, q, query, args...)
	var all []string
	for _, row := range rows {
		switch v := row[0].(type) {
		case string:
			all = append(all, v)
		case []byte:
			all = append(all, string(v))
		default:
			return nil, errors.New("holdfasttest: a name is no text")
		}
	}
	return all, err
}

func rowsOf(ctx context.Context, q querier, query string, args ...any) (all [][]any, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, v := range values {
			if b, is := v.([]byte); is {
				values[i] = slices.Clone(b)
			}
		}
		all = append(all, values)
	}
	return all, rows.Err()
}

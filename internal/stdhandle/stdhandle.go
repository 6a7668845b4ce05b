// Package stdhandle contains the code that the adapters of database/sql and sqlx share.
package stdhandle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Handle adapts a *sql.DB whose transactions are of type Tx.
type Handle[Tx any] struct {
	Querier
	// Pin takes a connection from the pool and returns it with the function that begins a
	// transaction on it.
	Pin func(ctx context.Context) (*sql.Conn, Begin[Tx], error)
	// Std returns the *sql.Tx inside a transaction, or nil if there is none.
	Std func(tx Tx) *sql.Tx
}

// Begin begins a transaction on a pinned connection.
type Begin[Tx any] func(ctx context.Context, opts *sql.TxOptions) (Tx, error)

// Acquire implements core.Adapter.
func (h Handle[Tx]) Acquire(ctx context.Context) (core.Conn[Tx], error) {
	h.Prepared.prepare(ctx)
	c, begin, err := h.Pin(ctx)
	if err != nil {
		return nil, err
	}
	return conn[Tx]{Querier{R: c}, c, begin, h.Std, h.Prepared}, nil
}

// Join implements core.Adapter.
func (h Handle[Tx]) Join(tx Tx) (core.Querier, error) {
	std := h.Std(tx)
	if std == nil {
		return nil, core.ErrNoTx
	}
	return Querier{std, h.Prepared}, nil
}

// Rollback implements core.Adapter.
func (h Handle[Tx]) Rollback(_ context.Context, tx Tx) error { return h.Std(tx).Rollback() }

type conn[Tx any] struct {
	Querier
	c     *sql.Conn
	begin Begin[Tx]
	std   func(Tx) *sql.Tx

	prepared *Prepared
}

func (c conn[Tx]) Begin(ctx context.Context, opts core.TxOptions) (Tx, error) {
	return c.begin(ctx, &sql.TxOptions{Isolation: opts.Isolation})
}

func (c conn[Tx]) Commit(_ context.Context, tx Tx) error { return c.std(tx).Commit() }

func (c conn[Tx]) Rollback(_ context.Context, tx Tx) error { return c.std(tx).Rollback() }

// Raw implements core.Conn.
func (c conn[Tx]) Raw(f func(driverConn any) error) error {
	return c.c.Raw(func(driverConn any) error {
		own, _ := unwrap(driverConn)
		return f(own)
	})
}

// Timely implements core.Timely: the COMMIT of a connector's transaction, and pgx's, takes the context of its BEGIN.
func (c conn[Tx]) Timely() (timely bool) {
	_ = c.c.Raw(func(driverConn any) error {
		own, k := unwrap(driverConn)
		timely = k != nil && k.tx != nil || reflect.TypeOf(own).String() == "*stdlib.Conn" // pgx's
		return nil
	})
	return timely
}

// kept runs f with the connection of a Connector, if it is one.
func (c conn[Tx]) kept(f func(k *keeping) error) error {
	return c.c.Raw(func(driverConn any) error {
		if _, k := unwrap(driverConn); k != nil {
			return f(k)
		}
		return nil
	})
}

// Pipes implements core.Pipeline.
func (c conn[Tx]) Pipes() (pipes bool) {
	_ = c.kept(func(k *keeping) error {
		pipes = k.native != nil && k.native.Pipes(k.Conn)
		return nil
	})
	return pipes
}

// BeginWith implements core.Pipeline.
func (c conn[Tx]) BeginWith(ctx, life context.Context, opts core.TxOptions, first core.Bound) (tx Tx, answer core.Reply, err error) {
	t := &late{}
	if err := c.kept(func(k *keeping) error { k.late = t; return nil }); err != nil {
		return tx, answer, err
	}
	if tx, err = c.begin(life, nil); err != nil {
		_ = c.kept(func(k *keeping) error { k.late = nil; return nil })
		return tx, answer, err
	}
	unpinned := c.kept(func(k *keeping) error {
		var begun driver.Tx
		if begun, answer, err = k.native.BeginWith(ctx, life, k.Conn, opts, first); err == nil {
			t.Tx = begun
		}
		return nil
	})
	if err = errors.Join(err, unpinned); err != nil {
		_ = c.std(tx).Rollback() // nothing has begun
	}
	return tx, answer, err
}

// CommitWith implements core.Pipeline.
func (c conn[Tx]) CommitWith(ctx context.Context, tx Tx, last core.Bound) (answer core.Reply, err error) {
	sent := false
	unpinned := c.kept(func(k *keeping) error {
		answer, err = k.native.CommitWith(ctx, k.Conn, k.late.Tx, last)
		sent = answer.Err == nil
		k.late.committed, k.late.err = sent, err
		return nil
	})
	if sent {
		_ = c.std(tx).Commit() // this tells database/sql
	}
	return answer, errors.Join(err, unpinned)
}

// Keep implements core.Keeper.
func (c conn[Tx]) Keep(ctx context.Context, kept core.Kept, change func(q core.Querier) (undo string, err error)) (ok bool, err error) {
	var k *keeping
	err = c.kept(func(own *keeping) error { k = own; return nil })
	if k == nil || err != nil {
		return false, err
	}
	c.prepared.leave() // the connection prepares them itself
	// The connection is pinned, so no other call uses it between these calls.
	return k.keep(kept, func() (string, error) { return change(c.Querier) }, func(text string) error {
		_, err := core.Stmt{Name: "unset", Text: text}.Exec(ctx, c.Querier)
		return err
	})
}

// Intact implements core.Keeper.
func (c conn[Tx]) Intact() (intact bool, again error) {
	_ = c.kept(func(k *keeping) error { intact, again = k.intact(); return nil })
	return intact, again
}

func (c conn[Tx]) Release(discard bool) {
	if discard {
		// This is the documented way to make database/sql close a connection.
		_ = c.c.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = c.c.Close()
}

// runner is implemented by *sql.DB, *sql.Conn and *sql.Tx.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Querier runs statements on a runner of database/sql.
type Querier struct {
	R        runner
	Prepared *Prepared // nil: each statement is sent as it is
}

// stmt returns the prepared statement for this runner, or nil.
func (q Querier) stmt(ctx context.Context, query string) *sql.Stmt {
	tx, inTx := q.R.(*sql.Tx)
	if !inTx {
		q.Prepared.prepare(ctx)
	}
	stmt := q.Prepared.get(ctx, query)
	if inTx && stmt != nil {
		return tx.StmtContext(ctx, stmt)
	}
	return stmt
}

func (q Querier) exec(ctx context.Context, query string, args []any) (sql.Result, error) {
	if stmt := q.stmt(ctx, query); stmt != nil { //nolint:sqlclosecheck // the transaction closes it, or Prepared
		if r, err := stmt.ExecContext(ctx, args...); !unsent(err) {
			return r, err
		}
	}
	return q.R.ExecContext(ctx, query, args...)
}

// Exec implements core.Querier.
func (q Querier) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	r, err := q.exec(ctx, query, args)
	if err != nil {
		return core.Result{}, err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return core.Result{}, err
	}
	id, err := r.LastInsertId()
	if err != nil { // PostgreSQL's drivers do not support it
		id = 0
	}
	return core.Result{Affected: n, InsertID: id}, nil
}

// Query implements core.Querier.
func (q Querier) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if stmt := q.stmt(ctx, query); stmt != nil { //nolint:sqlclosecheck // the transaction closes it, or Prepared
		rows, err := stmt.QueryContext(ctx, args...) //nolint:rowserrcheck // the caller of Query does
		if err == nil {
			return rows, nil
		}
		if !unsent(err) {
			return nil, err
		}
	}
	rows, err := q.R.QueryContext(ctx, query, args...) //nolint:rowserrcheck // the caller of Query does
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// unsent reports whether a prepared statement was not sent because the program's transaction is one of another pool, or because
// leave has closed it. database/sql has no names for these errors.
func unsent(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "sql: Tx.Stmt: statement from different database") || err.Error() == "sql: statement is closed")
}

package holdfast

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"

	"github.com/holdfast-go/holdfast/internal/core"
)

var ownerSetting = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$`)

func checkOwnerSetting(name string) error {
	if name != "" && (len(name) > 63 || !ownerSetting.MatchString(name)) {
		return &InputError{Field: "Options.OwnerSetting", Problem: fmt.Sprintf("%.40q is not two words of letters, digits and underscores with a dot between them, at most 63 bytes", name)}
	}
	return nil
}

func (d *DB[Tx]) setOwner(ctx context.Context, q core.Querier, owner string) error {
	_, err := core.Stmt{Name: "owner", Text: d.dialect.SetOwner}.Exec(ctx, q, d.options.OwnerSetting, owner)
	return err
}

// ownerInTx is the Querier of a transaction. It sets the owner before each statement that names
// one: the end of a savepoint may have taken back what was set before.
type ownerInTx[Tx any] struct {
	core.Querier
	d *DB[Tx]
}

func (o ownerInTx[Tx]) Exec(ctx context.Context, query string, args ...any) (r core.Result, err error) {
	if owner, ok := core.StatementOwner(ctx); ok {
		err = o.d.setOwner(ctx, o.Querier, owner)
	}
	if err != nil {
		return r, err
	}
	return o.Querier.Exec(ctx, query, args...)
}

func (o ownerInTx[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	if owner, ok := core.StatementOwner(ctx); ok {
		if err := o.d.setOwner(ctx, o.Querier, owner); err != nil {
			return nil, err
		}
	}
	return o.Querier.Query(ctx, query, args...)
}

// ownerOnConn is a Conn with a transaction around each statement that names an owner: what the
// setting gets lasts as long as that, also behind a pooler. It is no core.Pipeline.
type ownerOnConn[Tx any] struct {
	core.Conn[Tx]
	d *DB[Tx]
}

func (o ownerOnConn[Tx]) Exec(ctx context.Context, query string, args ...any) (r core.Result, err error) {
	owner, ok := core.StatementOwner(ctx)
	if !ok {
		return o.Conn.Exec(ctx, query, args...)
	}
	tx, q, err := o.owned(ctx, owner)
	if err != nil {
		return r, err
	}
	r, err = q.Exec(ctx, query, args...)
	return r, o.end(ctx, tx, err)
}

func (o ownerOnConn[Tx]) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	owner, ok := core.StatementOwner(ctx)
	if !ok {
		return o.Conn.Query(ctx, query, args...)
	}
	tx, q, err := o.owned(ctx, owner)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, query, args...)
	if err != nil {
		return nil, o.end(ctx, tx, err)
	}
	return &ownerRows{rows, func(err error) error { return o.end(ctx, tx, err) }}, nil
}

func (o ownerOnConn[Tx]) owned(ctx context.Context, owner string) (tx Tx, q core.Querier, err error) {
	if tx, err = o.Begin(ctx, core.TxOptions{}); err != nil {
		return tx, nil, err
	}
	if q, err = o.d.adapter.Join(tx); err == nil {
		err = o.d.setOwner(ctx, q, owner)
	}
	if err != nil {
		return tx, nil, o.end(ctx, tx, err)
	}
	return tx, q, nil
}

// end commits, or rolls back after an error of the statement. No error of a COMMIT is one after which
// the statement runs again on another connection.
func (o ownerOnConn[Tx]) end(ctx context.Context, tx Tx, err error) error {
	if err != nil {
		cleanup, cancel := core.Cleanup(ctx)
		defer cancel()
		_, _ = core.Bounded(cleanup, func() error { return o.Rollback(cleanup, tx) }, nil)
		return err
	}
	if err = o.Commit(ctx, tx); errors.Is(err, driver.ErrBadConn) {
		return errors.New("holdfast: the connection was lost at COMMIT")
	}
	return err
}

// ownerRows end their transaction when they are closed.
type ownerRows struct {
	core.Rows
	end func(err error) error
}

func (r *ownerRows) Close() error {
	err := errors.Join(r.Rows.Close(), r.Err())
	if r.end != nil {
		err, r.end = r.end(err), nil
	}
	return err
}

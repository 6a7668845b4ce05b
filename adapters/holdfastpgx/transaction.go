package holdfastpgx

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// transaction is a transaction whose COMMIT was sent with the last statement, so pgx does not know
// about it. After that it returns the errors of a pgx.Tx that has ended, because another caller
// may use its connection.
type transaction struct {
	pgx.Tx
	over atomic.Bool
}

func (t *transaction) closed() error {
	if t.over.Load() {
		return pgx.ErrTxClosed
	}
	return nil
}

// Begin implements pgx.Tx.
func (t *transaction) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.closed(); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}

// Commit implements pgx.Tx.
func (t *transaction) Commit(ctx context.Context) error {
	if err := t.closed(); err != nil {
		return err
	}
	return t.Tx.Commit(ctx)
}

// Rollback implements pgx.Tx.
func (t *transaction) Rollback(ctx context.Context) error {
	if err := t.closed(); err != nil {
		return err
	}
	return t.Tx.Rollback(ctx)
}

// CopyFrom implements pgx.Tx.
func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	if err := t.closed(); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, from)
}

// SendBatch implements pgx.Tx.
func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.closed(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// Prepare implements pgx.Tx.
func (t *transaction) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if err := t.closed(); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, query)
}

// Exec implements pgx.Tx.
func (t *transaction) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	if err := t.closed(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, query, args...)
}

// Query implements pgx.Tx.
func (t *transaction) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	if err := t.closed(); err != nil {
		return failedRow{err}, err
	}
	return t.Tx.Query(ctx, query, args...)
}

// QueryRow implements pgx.Tx.
func (t *transaction) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	if err := t.closed(); err != nil {
		return failedRow{err}
	}
	return t.Tx.QueryRow(ctx, query, args...)
}

// failedRow is a pgx.Row whose Scan returns an error.
type failedRow struct{ err error }

func (r failedRow) Close()                                       {}
func (r failedRow) Err() error                                   { return r.err }
func (r failedRow) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r failedRow) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r failedRow) Next() bool                                   { return false }
func (r failedRow) Scan(...any) error                            { return r.err }
func (r failedRow) Values() ([]any, error)                       { return nil, r.err }
func (r failedRow) RawValues() [][]byte                          { return nil }
func (r failedRow) Conn() *pgx.Conn                              { return nil }
func (r failedRow) TypeMap() *pgtype.Map                         { return nil }

package holdfast

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// cures are the errors that give the remedy for a driver's.
var cures = map[dialect.Class]error{
	dialect.ReadOnly: ErrReadOnly, dialect.Denied: ErrDenied, dialect.Cut: ErrConnectionLost, dialect.Large: ErrTooLarge,
	dialect.Unplaced: fmt.Errorf("%w: the keyspace is sharded, and its VSchema has no entry for a table: apply what `holdfast migrate print --engine vitess --vschema` prints", ErrSchema),
}

// explain adds the remedy to a driver's error that has the same remedy on every engine.
func (d *DB[Tx]) explain(err error) error {
	if err == nil || d.dialect == nil { // while it is opened, the engine is not known yet
		return err
	}
	cure := cures[d.dialect.Classify(err)]
	switch {
	case cure == nil, errors.Is(err, cure):
		return err
	case errors.Is(cure, ErrConnectionLost) && (Code(err) != "" || isAny(err, context.Canceled, context.DeadlineExceeded)): // it says more
		return err
	}
	return fmt.Errorf("%w: %w", cure, err)
}

// explained is a Querier that explains its errors.
type explained struct {
	core.Querier
	explainer
}

// explainer is a DB of any kind.
type explainer interface{ explain(err error) error }

func (e explained) Exec(ctx context.Context, query string, args ...any) (core.Result, error) {
	r, err := e.Querier.Exec(ctx, query, args...)
	return r, e.explain(err)
}

func (e explained) Query(ctx context.Context, query string, args ...any) (core.Rows, error) {
	rows, err := e.Querier.Query(ctx, query, args...)
	if err != nil {
		return nil, e.explain(err)
	}
	return explainedRows{rows, e.explainer}, nil
}

// QueryRow implements core.RowQuerier.
func (e explained) QueryRow(ctx context.Context, dest []any, query string, args ...any) (bool, error) {
	found, err := core.QueryRow(ctx, e.Querier, dest, query, args...)
	return found, e.explain(err)
}

// explainedBoth is an explained Batcher.
type explainedBoth struct {
	explained
	batcher core.Batcher
}

// Both implements core.Batcher.
func (e explainedBoth) Both(ctx context.Context, first, second core.Bound) (a, b core.Reply) {
	a, b = e.batcher.Both(ctx, first, second)
	a.Err, b.Err = e.explain(a.Err), e.explain(b.Err)
	return a, b
}

// explainedRows explain errors that a driver returns only while the rows are read.
type explainedRows struct {
	core.Rows
	explainer
}

func (r explainedRows) Scan(dest ...any) error { return r.explain(r.Rows.Scan(dest...)) }
func (r explainedRows) Err() error             { return r.explain(r.Rows.Err()) }
func (r explainedRows) Close() error           { return r.explain(r.Rows.Close()) }

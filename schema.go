package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The schema versions that this build supports. A rolling deployment runs two builds at once,
// so the range includes more than one version where possible.
const (
	minSchema = 1
	maxSchema = 1
)

// CheckSchema checks the version and the shape of Holdfast's tables. It returns [ErrSchema],
// with the command to run, if this build does not support the version, and [ErrUnsupported] if
// the tables are not as the migrations made them.
func (d *DB[Tx]) CheckSchema(ctx context.Context) error {
	table := d.table("schema")
	var have int
	var found bool
	err := d.onConn(ctx, "", func(q core.Querier) (err error) {
		found, err = core.Stmt{Name: "schema", Text: `SELECT version FROM ` + table}.QueryRow(ctx, q, []any{&have})
		return err
	})
	switch {
	case err != nil && d.dialect.Classify(err) == dialect.NoTable:
		return &SchemaError{Table: table, Min: minSchema, Max: maxSchema, Err: err}
	case err != nil:
		return fmt.Errorf("holdfast: reading the schema's version: %w", err)
	case !found || have < minSchema || have > maxSchema:
		return &SchemaError{Table: table, Have: have, Min: minSchema, Max: maxSchema}
	}
	if dialect.Skips(ctx, dialect.RuleTables) {
		return nil
	}
	return d.onConn(ctx, "", func(q core.Querier) error { return d.checkShape(ctx, q) })
}

package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// The versions of the schema that this build works with. A rolling deploy
// runs two builds at once, so the range is wider than one when it can be.
const (
	minSchema = 1
	maxSchema = 1
)

// CheckSchema reads the version of Holdfast's tables and refuses one that
// this build does not work with: [ErrSchema], with the command to run.
func (d *DB[Tx]) CheckSchema(ctx context.Context) error {
	table := d.table("schema")
	var have int
	found, err := core.Stmt{Name: "schema", Text: `SELECT version FROM ` + table}.QueryRow(ctx, d.pool, []any{&have})
	switch {
	case err != nil && d.dialect.Classify(err) == dialect.NoTable:
		return &SchemaError{Table: table, Min: minSchema, Max: maxSchema, Err: err}
	case err != nil:
		return fmt.Errorf("holdfast: reading the schema's version: %w", err)
	case !found || have < minSchema || have > maxSchema:
		return &SchemaError{Table: table, Have: have, Min: minSchema, Max: maxSchema}
	}
	return nil
}

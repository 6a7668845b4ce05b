package holdfast

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/shape"
)

// checkShape refuses Holdfast's tables if they differ from what the migrations made: for
// example, a key is missing after a restore, a trigger or a rule was added, or a table has
// another owner. It ignores missing tables; [DB.CheckSchema] reports those.
func (d *DB[Tx]) checkShape(ctx context.Context, q core.Querier) error {
	if d.shaped.Load() || d.dialect.Admission.Golden == "" {
		return nil
	}
	found, err := d.shape(ctx, q)
	switch {
	case d.unproven && d.dialect.Classify(err) == dialect.NoTable:
		return d.untested(d.product)
	case err != nil:
		return fmt.Errorf("holdfast: reading the shape of the tables: %w", err)
	case d.unproven:
		var lines []line
		found, lines = cutLines(found)
		if err := d.admitLine(ctx, q, d.product, lines); err != nil {
			return err
		}
	}
	if problems := shape.Differences(d.dialect.Admission.Golden, d.options.Prefix, found); len(problems) > 0 {
		return &UnsupportedError{
			Engine: d.product, Check: "tables", What: "tables", Value: strings.Join(problems, "; "),
			Problem: "they are not as the migrations made them, so that a key may be executed twice and a lease have two holders (G1, G4)",
			Remedy:  "restore what is missing and remove what was added (holdfast migrate print has each table), or move what is there away and run holdfast migrate up",
		}
	}
	last := dialect.Tables[len(dialect.Tables)-1]
	if slices.ContainsFunc(found, func(l string) bool { return strings.HasPrefix(l, last+" kind") }) {
		d.shaped.Store(true) // the last table exists, so all of them do
	}
	return nil
}

func (d *DB[Tx]) shape(ctx context.Context, q core.Querier) ([]string, error) {
	return shape.Read(ctx, q, d.dialect, d.schema, d.options.Prefix, dialect.Tables)
}

package holdfast

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Shape returns the lines that [DB.checkShape] compares, without owners.
func (d *DB[Tx]) Shape(ctx context.Context) (lines []string, err error) {
	err = d.onConn(ctx, "", func(q core.Querier) error {
		lines, err = d.shape(ctx, q)
		return err
	})
	return lines, err
}

// OnLine checks the tables as Open does on a server of another version line.
func (d *DB[Tx]) OnLine(ctx context.Context, product string) error {
	on := *d
	of := *d.dialect
	on.dialect, on.shaped, on.unproven, on.product = &of, new(atomic.Bool), true, product
	on.dialect.Admission.AddLines(on.lines())
	return d.onConn(ctx, "", func(q core.Querier) error { return on.checkShape(ctx, q) })
}

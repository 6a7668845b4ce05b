package holdfast

import (
	"context"

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

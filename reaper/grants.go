package reaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// mayClear fails if the account lacks a right that a pass needs. A pass that finds nothing to clear
// tries none of them, so it would say nothing of it until something is due. It asks once.
func (r *Reaper) mayClear(ctx context.Context) error {
	if r.allowed || r.dialect.Privileges.Held == nil {
		return nil
	}
	var lacks []error
	for _, name := range dialect.Tables {
		asks := r.dialect.Asks(dialect.RoleReaper, name, r.table(name))
		for _, right := range slices.Sorted(maps.Keys(asks)) {
			rows, err := (core.Stmt{Name: "reaper.grants", Text: asks[right]}).Query(ctx, r.pool)
			if err == nil {
				_, err = core.Collect(rows, func(core.Row) (struct{}, error) { return struct{}{}, nil })
			}
			if errors.Is(err, holdfast.ErrDenied) || r.dialect.Classify(err) == dialect.Denied {
				lacks = append(lacks, fmt.Errorf("%s on %s", right, r.table(name)))
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(lacks) > 0 {
		return fmt.Errorf("reaper: the account lacks what `holdfast migrate grants --role reaper` prints: %w: %w", errors.Join(lacks...), holdfast.ErrDenied)
	}
	r.allowed = true
	return nil
}

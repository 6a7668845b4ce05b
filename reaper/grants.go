package reaper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	var lacks []string
	for _, name := range dialect.Tables {
		asks := r.dialect.Asks(dialect.RoleReaper, name, r.table(name))
		for _, right := range slices.Sorted(maps.Keys(asks)) {
			rows, err := (core.Stmt{Name: "reaper.grants", Text: asks[right]}).Query(ctx, r.pool)
			if err == nil {
				_, err = core.Collect(rows, func(core.Row) (struct{}, error) { return struct{}{}, nil })
			}
			if errors.Is(err, holdfast.ErrDenied) || r.dialect.Classify(err) == dialect.Denied {
				lacks = append(lacks, right+" on "+r.table(name))
			}
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(lacks) > 0 {
		return fmt.Errorf("reaper: the account lacks what `holdfast migrate grants --role reaper` prints: %s: %w", strings.Join(lacks, "; "), holdfast.ErrDenied)
	}
	r.allowed = true
	return nil
}

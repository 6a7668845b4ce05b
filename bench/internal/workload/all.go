package workload

import (
	"context"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/refunds"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// All lists the workloads, in the order in which they are run.
func All() []Workload {
	return []Workload{
		{"pair", Pair}, {"lock", Lock}, {"distinct", Distinct}, {"refund", Refund}, {"replay", Replay},
	}
}

// Tables makes the tables of all workloads.
func Tables(ctx context.Context, e *sqlengine.Engine) error {
	if err := locks.Tables(ctx, e); err != nil {
		return err
	}
	return refunds.Tables(ctx, e)
}

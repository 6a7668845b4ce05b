package workload

import (
	"context"

	"github.com/holdfast-go/holdfast/bench/internal/locks"
	"github.com/holdfast-go/holdfast/bench/internal/refunds"
	"github.com/holdfast-go/holdfast/bench/internal/settle"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// All lists the workloads in the order in which they run.
func All() []Workload {
	return []Workload{
		{Name: "flush", Run: Flush},
		{Name: "pair", Run: Pair},
		{Name: "lock", Run: Lock, Peers: true},
		{Name: "distinct", Run: Distinct, Peers: true},
		{Name: "hot", Run: Hot, Peers: true},
		{Name: "handover", Run: HandOver, Peers: true},
		{Name: "takeover", Run: Takeover},
		{Name: "refund", Run: Refund},
		{Name: "replay", Run: Replay},
		{Name: "processor", Run: Processor},
		{Name: "log", Run: Log},
		{Name: "leases", Run: Leases},
		{Name: "reap", Run: Reap},
		{Name: "settlement", Run: Settlement},
		{Name: "growth", Run: Growth},
		{Name: "load", Run: Load},
	}
}

// Tables creates the tables of all workloads.
func Tables(ctx context.Context, e *sqlengine.Engine) error {
	if err := locks.Tables(ctx, e); err != nil {
		return err
	}
	if err := settle.Tables(ctx, e); err != nil {
		return err
	}
	return refunds.Tables(ctx, e)
}

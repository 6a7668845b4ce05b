package fairlock

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Sweep deletes abandoned tickets.
func (s *tickets) Sweep(ctx context.Context, due []keeper.Abandoned) {
	for _, part := range lockname.ByOwner(due, func(a keeper.Abandoned) lockname.Name { return a.Name }) {
		s.sweep(ctx, part)
	}
}

// sweep deletes abandoned tickets of one owner.
func (s *tickets) sweep(ctx context.Context, due []keeper.Abandoned) {
	for batch := range slices.Chunk(due, pollBatch) {
		c, cancel := context.WithTimeout(ctx, core.CleanupBound())
		all, err := s.statements.releaseAll(c, batch)
		cancel()
		for _, a := range batch { // unless all existed, some may still arrive, or are locked
			s.k.Swept(a, err == nil && all)
		}
	}
}

// Renew and Remaining run the statements of tickets.
func (s *tickets) Renew(ctx context.Context, ttl time.Duration, batch []*keeper.Lease) (map[keeper.AttemptID]bool, error) {
	return s.statements.Renew(ctx, s.statements.sql.Renew, ttl, batch)
}

func (s *tickets) Remaining(ctx context.Context, batch []*keeper.Lease) (map[keeper.AttemptID]time.Duration, error) {
	return s.statements.Remaining(ctx, s.statements.sql.Remaining, batch)
}

// WaitsHere does not know: the tickets that enter the queue may have room.
func (s *tickets) WaitsHere(*keeper.Lease) bool { return false }

// Waited returns the locks whose queues have tickets that wait.
func (s *tickets) Waited(ctx context.Context, names []lockname.Name) (waited map[lockname.Name]bool, err error) {
	err = s.statements.OnConn(ctx, func(q core.Querier) error {
		waited, err = s.statements.sql.Waited.Run(ctx, q, names)
		return err
	})
	return waited, err
}

// Close ends the waiting of all calls. Mu is held.
func (s *tickets) Close() {
	for _, q := range s.queues {
		for _, c := range append(q.entering, q.waiting...) {
			signal(c.event)
		}
	}
}

// Wait waits until no goroutine writes any more, or ctx ends.
func (s *tickets) Wait(ctx context.Context) {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Stop waits for the goroutine that polls.
func (s *tickets) Stop() { s.polls.Wait() }

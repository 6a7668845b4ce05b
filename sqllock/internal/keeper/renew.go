package keeper

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/trace"
	"github.com/holdfast-go/holdfast/sqllock/internal/schedule"
)

const (
	// renewPart is the part of the TTL after which a lease is renewed: a third. The same time
	// bounds one renewal, so that there is time for a second one.
	renewPart = 3
	// retryPart is the part of the TTL after which a renewal is tried again, if it failed or
	// found the row locked.
	retryPart = 20
	// renewBatch is how many leases a statement renews. renewAtOnce is how many such statements
	// run concurrently.
	renewBatch  = 2048
	renewAtOnce = 4
	// renewLess divides the size of the next batches after one batch took too long: there is
	// time for one more before the leases end.
	renewLess = 8
)

// renewal returns the schedule of the leases with a similar TTL, because a statement that hangs
// for a part of a long TTL must not delay leases with a short one. Mu is held.
func (k *Keeper) renewal(ttl time.Duration) *schedule.Schedule[*Lease] {
	size := bits.Len64(uint64(ttl)) //nolint:gosec // it is above zero
	a := k.renewals[size]
	if a == nil {
		a = schedule.New(k.Ctx, time.Duration(1)<<size/32, k.renew)
		k.renewals[size] = a
	}
	return a
}

// renew renews the due leases in batches, in the order of their names.
func (k *Keeper) renew(ctx context.Context, due []*Lease) {
	slices.SortFunc(due, func(a, b *Lease) int { return a.attempt.Name.Compare(b.attempt.Name) })
	type group struct { // leases that one statement can renew
		kind  Terms
		ttl   time.Duration
		owner string
		alone *Lease
	}
	groups := map[group][]*Lease{}
	k.Mu.Lock()
	for _, l := range due {
		g := group{l.kind, l.attempt.TTL, l.attempt.Name.Owner, nil}
		if l.locked {
			g.alone = l
		}
		groups[g] = append(groups[g], l)
	}
	k.Mu.Unlock()
	var running sync.WaitGroup
	slots := make(chan struct{}, renewAtOnce)
	for of, leases := range groups {
		for batch := range slices.Chunk(leases, int(k.renewSize.Load())) {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				k.renewBatch(ctx, of.kind, of.ttl, batch)
			})
		}
	}
	running.Wait()
}

// better returns the error of a renewal that says more: the time of the last one may have cut it off.
func better(earlier, last error) error {
	if earlier != nil && errors.Is(last, context.DeadlineExceeded) {
		return earlier
	}
	return last
}

func (k *Keeper) renewBatch(background context.Context, of Terms, ttl time.Duration, batch []*Lease) {
	ctx, cancel := context.WithTimeout(background, ttl/renewPart)
	defer cancel()
	ctx, op := k.Mu.trace.Start(ctx, trace.Call{Name: "lease.renew", Lock: batch[0].lock, Background: true})
	sent := time.Now()
	renewed, err := of.Renew(ctx, ttl, batch)
	var left map[AttemptID]time.Duration
	var asked time.Time
	if err == nil && len(renewed) < len(batch) {
		asked = time.Now()
		left, err = of.Remaining(ctx, batch)
	}
	k.resize(ctx, len(batch), err)
	op.Rows = int64(len(renewed))
	op.End(err, nil)
	locked := err != nil && k.Statements.Dialect.Leases.Alone && k.Statements.waited(err)
	if locked && len(batch) > 1 {
		k.renewEach(background, of, ttl, batch)
		return
	}
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, l := range batch {
		rest := left[l.attempt.ID]
		switch {
		case !l.live || l.once && l.granted:
			continue
		case renewed[l.attempt.ID]:
			l.Prolong(sent.Add(ttl))
			l.renewError, l.locked = nil, false
			k.renewal(ttl).Set(l, sent.Add(ttl/renewPart))
			continue
		case err != nil:
			l.renewError, l.locked = better(l.renewError, err), locked
		case rest <= 0:
			k.Lose(l, trace.CauseTaken, "its row is another's by now, or it was taken away, or it had expired")
			continue
		default: // locked, by a guarded transaction
			l.Prolong(asked.Add(rest))
		}
		k.renewal(ttl).Set(l, time.Now().Add(Jitter(ttl/retryPart)))
	}
}

// renewEach renews leases one by one, after a statement for all of them waited for a locked row in
// vain: a guarded transaction must not delay the leases of others.
func (k *Keeper) renewEach(ctx context.Context, of Terms, ttl time.Duration, batch []*Lease) {
	var running sync.WaitGroup
	slots := make(chan struct{}, renewAtOnce)
	for _, l := range batch {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			k.renewBatch(ctx, of, ttl, []*Lease{l})
		})
	}
	running.Wait()
}

// resize adapts the size of the next batches to the outcome of a batch.
func (k *Keeper) resize(ctx context.Context, n int, err error) {
	size := k.renewSize.Load()
	switch {
	case err == nil && int64(n) == size:
		k.renewSize.CompareAndSwap(size, min(2*size, renewBatch))
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded):
		if less := max(int64(n)/renewLess, 1); less < size {
			k.renewSize.CompareAndSwap(size, less)
		}
	}
}

// Jitter shortens d by up to a quarter, so that several processes do not act in step.
func Jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// Renew runs a statement that renews terms, and returns which it renewed.
func (s *Statements) Renew(ctx context.Context, stmt lockstmt.Renew, ttl time.Duration, batch []*Lease) (renewed map[AttemptID]bool, err error) {
	err = s.OnMany(ctx, func(q core.Querier) error {
		renewed, err = stmt.Run(ctx, q, ttl, rowsOf(batch))
		return err
	})
	return renewed, err
}

// Remaining runs a statement that returns how long terms last.
func (s *Statements) Remaining(ctx context.Context, stmt lockstmt.Remaining, batch []*Lease) (left map[AttemptID]time.Duration, err error) {
	err = s.OnConn(ctx, func(q core.Querier) error {
		left, err = stmt.Run(ctx, q, rowsOf(batch))
		return err
	})
	return left, err
}

func rowsOf(batch []*Lease) []lockstmt.TermID {
	rows := make([]lockstmt.TermID, len(batch))
	for i, l := range batch {
		rows[i] = lockstmt.TermID{Name: l.attempt.Name, Attempt: l.attempt.ID}
	}
	return rows
}

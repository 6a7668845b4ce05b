package keeper

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// The rest of this file is for tests.

// Batch is the maximum number of leases that a statement renews. SmallBatch is the number after
// one statement took too long.
const (
	Batch      = renewBatch
	SmallBatch = renewBatch / renewLess
)

// Lapse ends the lease's trust window although its timer has not fired, as in a process that
// was stopped and continues.
func (l *Lease) Lapse() {
	l.keeper.Mu.Lock()
	defer l.keeper.Mu.Unlock()
	l.setUntil(time.Now())
}

// RenewalError returns the error of the last renewal. Mu is held.
func (l *Lease) RenewalError() error { return l.renewError }

// RenewNow renews leases.
func (k *Keeper) RenewNow(ctx context.Context, leases []*Lease) { k.renew(ctx, leases) }

// LookForWaiters reads whether calls wait for the leases that are held.
func (k *Keeper) LookForWaiters(ctx context.Context) {
	k.Mu.Lock()
	held, _ := k.Held()
	k.Mu.Unlock()
	k.lookForWaiters(ctx, held)
}

// RenewAll renews the leases that are held.
func (k *Keeper) RenewAll(ctx context.Context) {
	k.Mu.Lock()
	held, _ := k.Held()
	k.Mu.Unlock()
	k.renew(ctx, held)
}

// SetTurn sets Turn.
func (k *Keeper) SetTurn(d time.Duration) { k.Turn = d }

// RenewSize returns how many leases the next statement may renew.
func (k *Keeper) RenewSize() int64 { return k.renewSize.Load() }

// Held returns the leases that are held, and how many renewals are scheduled. Mu is held.
func (k *Keeper) Held() (leases []*Lease, renewals int) {
	for l := range k.held {
		leases = append(leases, l)
	}
	for _, r := range k.renewals {
		renewals += r.Len()
	}
	return leases, renewals
}

// Forget ends leases without writing to the database.
func (k *Keeper) Forget(leases []*Lease) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, l := range leases {
		k.End(l, ErrReleased)
	}
}

// Wrap runs all further statements through wrap. Call it before the first lease: what looks after leases uses
// the store in its own goroutines.
func (s *Statements) Wrap(wrap func(core.Querier) core.Querier) {
	onConn := s.onConn
	s.onConn = func(ctx context.Context, before string, f func(q core.Querier) error) error {
		return onConn(ctx, before, func(q core.Querier) error { return f(wrap(q)) })
	}
}

package keeper

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// wantedEvery is how often the process reads whether calls wait for the leases that ask for it, and wantedBatch
// for how many locks with one statement.
const (
	wantedEvery = 500 * time.Millisecond
	wantedBatch = 256
)

// Wanted returns a channel that is closed once another call waits for the lock.
func (l *Lease) Wanted() <-chan struct{} {
	l.keeper.Mu.Lock()
	defer l.keeper.Mu.Unlock()
	if l.wanted == nil {
		l.wanted = make(chan struct{})
		if l.kind.WaitsHere(l) {
			l.Want()
		} else if l.live {
			l.keeper.wants.Set(l, time.Now().Add(wantedEvery))
		}
	}
	return l.wanted
}

// Want says that a call waits for the lock of a lease, which may be nil. Mu is held.
func (l *Lease) Want() {
	if l == nil || l.wanted == nil {
		return
	}
	select {
	case <-l.wanted:
	default:
		close(l.wanted)
	}
}

// lookForWaiters reads whether calls wait for the locks of leases.
func (k *Keeper) lookForWaiters(ctx context.Context, due []*Lease) {
	ctx, cancel := context.WithTimeout(ctx, core.CleanupBound())
	defer cancel()
	byKind := map[Terms][]*Lease{}
	for _, l := range due {
		byKind[l.kind] = append(byKind[l.kind], l)
	}
	for kind, list := range byKind {
		for _, part := range lockname.ByOwner(list, func(l *Lease) lockname.Name { return l.attempt.Name }) {
			for some := range slices.Chunk(part, wantedBatch) {
				names := make([]lockname.Name, len(some))
				for i, l := range some {
					names[i] = l.attempt.Name
				}
				waited, err := kind.Waited(ctx, names)
				k.sawWaiters(some, waited, err)
			}
		}
	}
}

func (k *Keeper) sawWaiters(leases []*Lease, waited map[lockname.Name]bool, err error) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	for _, l := range leases {
		switch {
		case !l.live:
		case err == nil && waited[l.attempt.Name]:
			l.Want()
		default:
			k.wants.Set(l, time.Now().Add(wantedEvery))
		}
	}
}

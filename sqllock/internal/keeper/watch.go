package keeper

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// Watch calls read again and again until it returns false: see [core.Watch]. It ends with the keeper,
// too. of is the lease that read reads, or has no key. Where a release notifies, a watch of one lease
// reads at once after it: the watch has a row in the table of waiters, where it counts for none.
func (k *Keeper) Watch(ctx context.Context, of lockname.Name, read func(ctx context.Context) (goes bool, err error)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(k.Ctx, func() { end(ErrClosed) })()
	defer end(nil)
	wake, id, announced := make(chan struct{}, 1), k.NewAttemptID(), time.Time{}
	pushed := of.Key() != "" && !k.Notifier.Mute()
	if pushed {
		k.setWatch(wake, of)
		defer k.setWatch(wake, lockname.Name{})
	}
	return core.Watch(ctx, k.watchEvery, k.Statements.Dialect.Passes, wake, func() (bool, error) {
		if pushed && time.Since(announced) > lockstmt.WaiterLife/3 {
			k.Notifier.Need()
			announced = time.Now()
			_ = k.Statements.Announce(ctx, id, []Announcement{{Name: of}}) // without it, the reads are enough
		}
		return read(ctx)
	})
}

// WatchEvery sets how often watches read, for tests in which they are woken.
func (k *Keeper) WatchEvery(d time.Duration) { k.watchEvery = d }

// setWatch adds a watch of a lock, or removes it if name has no key.
func (k *Keeper) setWatch(wake chan struct{}, name lockname.Name) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	if name.Key() == "" {
		delete(k.watches, wake)
	} else {
		k.watches[wake] = name
	}
}

// wakeWatches wakes the watches of a lock, or all of them if name has no key. Mu is held.
func (k *Keeper) wakeWatches(name lockname.Name) {
	for wake, of := range k.watches {
		if of == name || name.Key() == "" {
			signal(wake)
		}
	}
}

package keeper

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockname"
)

// Abandoned is a term that no caller uses, or an attempt that may still be granted: a statement
// that go-sql-driver cancelled continues at the server, and an answer may be lost. The keeper
// releases it in the background, repeatedly, for as long as the term could last.
type Abandoned struct {
	Name lockname.Name
	ID   AttemptID

	kind  Terms
	until time.Time
	pause time.Duration
	owed  bool // Close waits for it
}

const (
	firstPause = 100 * time.Millisecond
	// owedPause is the pause after which Close stops waiting: by then a statement that was
	// cancelled at the end has run, or is stuck.
	owedPause = 4 * firstPause
)

// Abandon releases an attempt in the background.
func (k *Keeper) Abandon(kind Terms, a Attempt) {
	k.Pending.Add(1)
	k.abandoned.Set(Abandoned{a.Name, a.ID, kind, time.Now().Add(a.TTL), firstPause, true}, time.Now())
}

func (k *Keeper) sweep(ctx context.Context, due []Abandoned) {
	byKind := map[Terms][]Abandoned{}
	for _, a := range due {
		byKind[a.kind] = append(byKind[a.kind], a)
	}
	for kind, list := range byKind {
		kind.Sweep(ctx, list)
	}
}

// Swept records the outcome of a sweep. An abandoned term that is not done is swept again
// later.
func (k *Keeper) Swept(a Abandoned, done bool) {
	at := time.Now().Add(a.pause)
	over := done || at.After(a.until)
	a.pause *= 2
	if a.owed && (over || a.pause >= owedPause) {
		a.owed = false
		k.Pending.Add(-1)
	}
	if !over {
		k.abandoned.Set(a, at)
	}
}

// Package locks has the locks that are compared, each behind the same interface.
package locks

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// TTL is that of every lock that has one: longer than any slice, so that
// nothing expires while it is measured.
const TTL = 30 * time.Second

// Release gives a lock back.
type Release func(ctx context.Context) error

// Lock is a way to lock keys, opened.
type Lock struct {
	// Acquire waits for key. Clients are counted from 0.
	Acquire func(ctx context.Context, client int, key string) (Release, error)
	// Probe asks the server once; nil where opening did.
	Probe func(ctx context.Context) error
	// Close ends it; nil where there is nothing to end.
	Close func(ctx context.Context) error
}

// World is what a competitor is opened on.
type World struct {
	// Engine is the SQL database, nil for the others.
	Engine *sqlengine.Engine
	// Servers are those that are no SQL database.
	Servers *servers.Set
	// Observe sees Holdfast's statements; nil while time is measured.
	Observe holdfast.Observer
}

// Trips is how many round trips there were so far, of those who are counted.
func (w *World) Trips() int64 {
	if w.Engine != nil {
		return w.Engine.Trips()
	}
	return w.Servers.Wire.Trips()
}

func (w *World) options() []holdfast.Option {
	return []holdfast.Option{holdfast.WithObserver(w.Observe)}
}

// Kind says what a competitor is.
type Kind string

// Kinds of competitors.
const (
	Canary  Kind = "canary"   // what the machine can do
	Floor   Kind = "floor"    // the bare statements, in the driver's best form
	Raw     Kind = "raw"      // a primitive of the server
	Ours    Kind = "holdfast" // this module
	Peer    Kind = "peer"     // another library
	StandIn Kind = "stand-in" // our own writing of what another library sends
)

// Competitor is one who is compared.
type Competitor struct {
	Name string
	Kind Kind
	// Against is the competitor of the same group that it is compared with.
	Against string
	// Statements are those of an acquire and a release, by construction; 0 where
	// an observer counts them.
	Statements float64
	// Counts: its round trips are counted on the wire.
	Counts bool
	Open   func(ctx context.Context, w *World) (*Lock, error)
}

// owner is who has a lock: another one with each attempt.
type owner [16]byte

var (
	ownerPart = rand.Uint64()
	ownerLast atomic.Uint64
)

func newOwner() (o owner) {
	binary.LittleEndian.PutUint64(o[:8], ownerPart)
	binary.LittleEndian.PutUint64(o[8:], ownerLast.Add(1))
	return o
}

// Poll is how long a loser sleeps before it asks again.
type Poll struct{ From, To time.Duration }

func (p Poll) sleep(ctx context.Context) error {
	d := p.From
	if p.To > p.From {
		d += rand.N(p.To - p.From)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// polled waits for a lock by asking until it is granted.
func polled(poll Poll, try func(ctx context.Context, key []byte, o []byte) (bool, error), free func(ctx context.Context, key []byte, o []byte) error) *Lock {
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		name, o := []byte(key), newOwner()
		for {
			granted, err := try(ctx, name, o[:])
			if err != nil {
				return nil, err
			}
			if granted {
				return func(ctx context.Context) error { return free(ctx, name, o[:]) }, nil
			}
			if err := poll.sleep(ctx); err != nil {
				return nil, err
			}
		}
	}}
}

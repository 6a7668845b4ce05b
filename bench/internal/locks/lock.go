// Package locks holds the compared locks, each behind the same interface.
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

// TTL is the TTL of every lock that has one. It is longer than any slice, so nothing expires
// during a measurement.
const TTL = 30 * time.Second

// Release releases a lock.
type Release func(ctx context.Context) error

// Lock is an opened competitor: a way to lock keys.
type Lock struct {
	// Acquire waits for key. Clients are numbered from 0.
	Acquire func(ctx context.Context, client int, key string) (Release, error)
	// Probe contacts the server once; nil if opening already did.
	Probe func(ctx context.Context) error
	// Close closes the lock; nil if there is nothing to close.
	Close func(ctx context.Context) error
}

// World is the server on which a competitor is opened.
type World struct {
	// Engine is the SQL database; nil for other servers.
	Engine *sqlengine.Engine
	// Servers are the servers that are not SQL databases.
	Servers *servers.Set
	// Observe receives Holdfast's statements; nil while time is measured.
	Observe holdfast.Observer
}

// Trips returns the number of round trips so far, on connections that are counted.
func (w *World) Trips() int64 {
	if w.Engine != nil {
		return w.Engine.Trips()
	}
	return w.Servers.Wire.Trips()
}

func (w *World) options() holdfast.Options {
	return holdfast.Options{SingleOwner: true, Observers: []holdfast.Observer{w.Observe}}
}

// Kind classifies a competitor.
type Kind string

// Kinds of competitors.
const (
	Canary  Kind = "canary"   // what the machine can do
	Floor   Kind = "floor"    // the bare statements, in the driver's best form
	Raw     Kind = "raw"      // a primitive of the server
	Ours    Kind = "holdfast" // this module
	Peer    Kind = "peer"     // another library
	StandIn Kind = "stand-in" // our own code that sends what another library sends
)

// Competitor is one lock in a comparison.
type Competitor struct {
	Name string
	Kind Kind
	// Against names the competitor of the same group with which it is compared.
	Against string
	// Statements is the number of statements of an acquire and a release, by construction; 0 if
	// an observer counts them.
	Statements float64
	// Counts is set if its round trips are counted on the wire.
	Counts bool
	// Processes, if above 0, is the number of processes among which the clients are divided. Open opens the
	// part of one.
	Processes int
	Open      func(ctx context.Context, w *World) (*Lock, error)
}

// attempt identifies the holder of a lock; each attempt has a new one.
type attempt [16]byte

var (
	attemptPart = rand.Uint64()
	attemptLast atomic.Uint64
)

func newAttempt() (a attempt) {
	binary.LittleEndian.PutUint64(a[:8], attemptPart)
	binary.LittleEndian.PutUint64(a[8:], attemptLast.Add(1))
	return a
}

// Poll is the range of time that a loser sleeps before it tries again.
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

// polled waits for a lock by trying until it is granted.
func polled(poll Poll, try func(ctx context.Context, key []byte, id []byte) (bool, error), free func(ctx context.Context, key []byte, id []byte) error) *Lock {
	return &Lock{Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
		name, id := []byte(key), newAttempt()
		for {
			granted, err := try(ctx, name, id[:])
			if err != nil {
				return nil, err
			}
			if granted {
				return func(ctx context.Context) error { return free(ctx, name, id[:]) }, nil
			}
			if err := poll.sleep(ctx); err != nil {
				return nil, err
			}
		}
	}}
}

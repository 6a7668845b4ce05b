package sqllock

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
	"github.com/holdfast-go/holdfast/sqllock/internal/keeper"
)

// Defaults and bounds of Options.
const (
	DefaultTTL = 30 * time.Second
	minTTL     = 50 * time.Millisecond
	maxTTL     = 24 * time.Hour

	maxHolder = 255
)

// The keeper has the same bounds.
var _ = [1]int{DefaultTTL - keeper.DefaultTTL + minTTL - keeper.MinTTL + maxTTL - keeper.MaxTTL + maxHolder - keeper.MaxHolder: 0}

// Options configure a Locker. The zero value of each field is its default.
type Options struct {
	// TTL is how long a lease lasts from its grant or its last renewal, by the database's
	// clock, exact to the microsecond. Renewal begins after a third of it. Bounds: 50 ms to
	// 24 h. Default: 30 s.
	TTL time.Duration
	// Margin is how much earlier than its expiry a lease's context ends. It covers what the
	// database's clock may gain on this process's clock within a TTL. 1 ms to half of the TTL.
	// Default: a tenth of the TTL.
	Margin time.Duration
	// Holder names this process to others, in at most 255 bytes of UTF-8. It is shown to people
	// only; which holder has a lock never depends on it. Default: host name and process id.
	Holder string
	// ReleaseOnDisconnect frees the leases of this process as soon as the process has ended,
	// instead of at their expiry, if another process waits for them. This process keeps two
	// connections of the pool for that: other processes see the end of one, and this process by
	// the other. On MySQL and MariaDB it keeps a third, whose end wakes those that wait. The next
	// token is higher, as always, and Guard refuses the old term. Of a semaphore or a shared lock the one that entered first
	// is freed so; a process that ends behind one that lives leaves what it has to the expiry.
	//
	// A lease's context then also ends when that connection is lost, or does not answer for three
	// seconds. If the server ends that connection while this process lives (an administrator, an
	// idle timeout, a pooler or a proxy in between), another process may be granted the lock before
	// the context ends: by some milliseconds if this process can be reached, and by up to three
	// seconds if it can neither be reached nor notices it. [Locker.Guard] refuses the old term in
	// both cases; work without it may overlap. So do not set it where something closes connections.
	// Without this option that cannot happen.
	//
	// PostgreSQL, MySQL and MariaDB with one writer; [New] returns [holdfast.ErrInvalid]
	// elsewhere, and for a pool of less than eight connections. Default: false.
	ReleaseOnDisconnect bool
}

// AcquireOptions configure one lease. The zero value of each field is its default.
type AcquireOptions struct {
	// TTL is Options.TTL for this lease: 50 ms to 24 h. The lease's margin is Options.Margin
	// if that was set, but at most half of this TTL; otherwise a tenth of this TTL. Default:
	// Options.TTL.
	TTL time.Duration
	// Reentry makes the lock re-entrant. If a lease was acquired with a Reentry, a call with
	// the same Reentry and key returns that lease. The lease keeps its TTL and its renewal. It
	// ends when it has been released as often as it was acquired. Its context does not end with that of [Locker.Do],
	// because other calls may share it: give work outside the database the ctx of fn too. Without a Reentry, a
	// goroutine that acquires a key that it already holds waits for itself. Default: none.
	Reentry *Reentry
	// NoRenewal disables renewal: the lease ends with its TTL, at the latest.
	NoRenewal bool
}

// Reentry is an id. Calls with the same Reentry may acquire the same lock again.
type Reentry struct{ _ byte } // not empty, so that two Reentries never have the same address

// NewReentry returns a new Reentry, for example one for each request. A Reentry is for one Locker.
func NewReentry() *Reentry { return new(Reentry) }

// settings returns the settings of one lease. Its context has the values of ctx.
func (l *Locker[Tx]) settings(ctx context.Context, opts []AcquireOptions) (keeper.Settings, error) {
	o, err := options.One(opts)
	if err != nil {
		return keeper.Settings{}, err
	}
	s, err := l.leases.k.Options.Settings(o.TTL, o.NoRenewal)
	s.Values = keeper.ValuesOf(ctx)
	if o.Reentry != nil {
		s.By = o.Reentry
	}
	return s, err
}

// Package holdfastgocron lets the replicas of a program share gocron's jobs: one replica runs a job at a time, or one
// of them runs all.
//
//	locks, err := sqllock.New(ctx, db)
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(
//		holdfastgocron.NewLocker(locks.For("service"), 30*time.Second)))
//
// The Elector is a member of package election, which campaigns until its context ends:
//
//	elector := holdfastgocron.NewElector(election.New(locks.For("service"), "scheduler"))
//	go elector.Run(ctx, []byte(hostname))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// gocron asks before a job and cannot stop it, so a replica that was stopped for longer than the TTL may still run a job
// that another one runs by then. A job that moves money has to be more: package idempotency/cron runs a job once a
// tick, over all replicas, restarts and clocks, and [sqllock.Locker.InTx] commits only what no later holder could have
// done.
package holdfastgocron

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

var errNotLeader = errors.New("holdfastgocron: this replica does not lead")

// NewLocker returns a Locker for gocron.WithDistributedLocker. A job's name is the key of its lease, among the leases of
// locks' owner: name each job, because gocron's default is the name of its function.
//
// The lease lasts as long as the job, but at least atLeast from its start, so replicas whose clocks differ by less do
// not run one tick twice: choose more than the clocks differ and less than the time between two runs.
//
// Errors of Lock: those of [sqllock.Locker.TryAcquire]; [sqllock.ErrHeld] if another replica runs the job.
func NewLocker[Tx any](locks *sqllock.Locker[Tx], atLeast time.Duration, opts ...sqllock.AcquireOptions) gocron.Locker {
	return &locker[Tx]{locks: locks, atLeast: atLeast, opts: opts}
}

type locker[Tx any] struct {
	locks   *sqllock.Locker[Tx]
	atLeast time.Duration
	opts    []sqllock.AcquireOptions
}

func (l *locker[Tx]) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	lease, err := l.locks.TryAcquire(ctx, key, l.opts...)
	if err != nil {
		return nil, err
	}
	return held{lease, time.Now().Add(l.atLeast)}, nil
}

type held struct {
	lease *sqllock.Lease
	until time.Time
}

// Unlock releases the lease once its least time is over.
func (h held) Unlock(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if rest := time.Until(h.until); rest > 0 {
		time.AfterFunc(rest, func() { _ = h.lease.Release(ctx) }) // an error leaves the lease to its TTL
		return nil
	}
	return h.lease.Release(ctx)
}

// Elector is a gocron.Elector: the jobs of a scheduler run while its replica leads.
type Elector struct {
	run    func(ctx context.Context, value []byte, fn func(ctx context.Context, leader *election.Leader) error) error
	leader atomic.Pointer[election.Leader]
}

// NewElector returns an Elector for gocron.WithDistributedElector. Run makes it campaign.
func NewElector[Tx any](of *election.Election[Tx]) *Elector { return &Elector{run: of.Run} }

// Run campaigns, and leads until ctx ends: see [election.Election.Run].
func (e *Elector) Run(ctx context.Context, value []byte) error {
	return e.run(ctx, value, func(_ context.Context, leader *election.Leader) error {
		e.leader.Store(leader)
		<-leader.Context().Done()
		return context.Cause(leader.Context()) //nolint:contextcheck // the reason why it leads no more
	})
}

// IsLeader returns nil while this replica leads, and else an error. It asks no database.
func (e *Elector) IsLeader(context.Context) error {
	if leader := e.leader.Load(); leader == nil || leader.Context().Err() != nil {
		return errNotLeader
	}
	return nil
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

const lockLong = `Run a command while no other process has the lock on KEY, and exit as the command does.

The command finds the lock in its environment: $HOLDFAST_KEY, $HOLDFAST_OWNER and
$HOLDFAST_TOKEN, which is higher for each holder. The lock is renewed while the command runs. When it
is lost, the command gets TERM, and KILL after --grace: before another can have the lock, if this
machine runs. A process that was stopped finds that out when it continues; let the database compare
tokens. Without a command, holdfast prints the token and holds the lock until it is interrupted, which
is then no failure. See docs/howto/shell.md.`

// errWait is the cause of a wait that is over.
var errWait = errors.New("another has the lock")

func newLock(f *flags) *cobra.Command {
	r := &runFlags{flags: f}
	var fair bool
	cmd := r.newRun("lock", "Run a command while no other process has the lock on a key", lockLong,
		func(ctx context.Context, cmd *cobra.Command, j *job) error {
			locks, err := r.openLocks(ctx, cmd, j)
			if err != nil {
				return err
			}
			defer closeLocks(ctx, locks)
			var from acquirer = locks
			if fair {
				from = fairlock.New(locks)
			}
			lease, err := r.acquire(ctx, j, from)
			if err != nil {
				return err
			}
			if j.path == "" {
				if lost := j.hold(ctx, lease); lost != nil {
					return statusError{exitLost, fmt.Errorf("the lock was lost: %w", lost)}
				}
				return nil
			}
			_, lost, err := j.underLease(ctx, lease, r.owner)
			if lost != nil && err == nil {
				return statusError{exitLost, fmt.Errorf("the lock was lost while the command ran: %w", lost)}
			}
			return err
		})
	cmd.Use = "lock [flags] KEY [-- COMMAND [ARGUMENT...]]"
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && cmd.ArgsLenAtDash() < 0 {
			return nil
		}
		return keyAndCommand(cmd, args)
	}
	r.addTimes(cmd, sqllock.DefaultTTL, "a fifth")
	r.addWait(cmd, "how long to wait for the lock")
	cmd.Flags().BoolVar(&fair, "fair", false, "first come, first served; a lock of its own, so all who use KEY give it, or none")
	return cmd
}

// openLocks opens the owner's locks. A lease's context ends so long before its expiry that the
// command is gone by then.
func (r *runFlags) openLocks(ctx context.Context, cmd *cobra.Command, j *job) (*sqllock.Locker[*sql.Tx], error) {
	if err := r.setGrace(cmd, r.ttl/5, r.ttl*2/5); err != nil { //nolint:mnd // what the flags say
		return nil, err
	}
	j.grace = r.grace
	locks, err := sqllock.New(ctx, j.db, sqllock.Options{TTL: r.ttl, Margin: r.ttl/10 + r.grace})
	if err != nil {
		return nil, err
	}
	return locks.For(r.owner), nil
}

// closeLocks closes locks that hold nothing any more, so it does not wait long for a database that does
// not answer.
func closeLocks(ctx context.Context, locks *sqllock.Locker[*sql.Tx]) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	_ = locks.Close(ctx)
}

// acquirer is a kind of locks.
type acquirer interface {
	Acquire(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error)
	TryAcquire(ctx context.Context, key string, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error)
}

// acquire waits for the lock as --wait says.
func (r *runFlags) acquire(ctx context.Context, j *job, from acquirer) (lease *sqllock.Lease, err error) {
	if !j.waits && r.wait == 0 {
		lease, err = from.TryAcquire(ctx, j.key)
	} else {
		if !j.waits {
			var done context.CancelFunc
			ctx, done = context.WithTimeoutCause(ctx, r.wait, errWait)
			defer done()
		}
		lease, err = from.Acquire(ctx, j.key)
	}
	switch {
	case errors.Is(err, sqllock.ErrHeld):
		return nil, statusError{exitHeld, err}
	case errors.Is(err, errWait):
		return nil, statusError{exitHeld, fmt.Errorf("%w, and still had it after %v", errWait, r.wait)}
	}
	return lease, err
}

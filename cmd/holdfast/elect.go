package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
)

const electLong = `Run a command on one machine at a time: wait until elected for KEY, run the command, and exit as it does.

When the leadership is lost, the command gets TERM, and KILL after --grace, and holdfast
waits to be elected again: also while the database cannot be reached. The command finds its
leadership in $HOLDFAST_KEY, $HOLDFAST_OWNER and $HOLDFAST_TOKEN, which is higher for each leader.
A leadership is the lock that holdfast lock takes without --fair. See docs/howto/shell.md.`

// electPause is the time between two tries while the database answers with errors.
const electPause = time.Second

func newElect(f *flags) *cobra.Command {
	r := &runFlags{flags: f}
	var value string
	cmd := r.newRun("elect", "Run a command while elected for a key, and again when elected again", electLong,
		func(ctx context.Context, cmd *cobra.Command, j *job) error {
			locks, err := r.openLocks(ctx, cmd, j)
			if err != nil {
				return err
			}
			defer closeLocks(ctx, locks)
			for {
				leader, err := j.campaign(ctx, election.New(locks, j.key), []byte(value))
				if err != nil {
					return err
				}
				over, lost, err := j.underLease(ctx, leader.Lease, r.owner)
				if lost == nil {
					return err
				}
				if over != nil {
					j.sayf("no longer elected (%s): the command had ended by itself", withoutPassword(lost.Error()))
					return ended(over)
				}
				if err := j.asked(); err != nil {
					return err
				}
				what := "the command was ended"
				if err != nil {
					what = "the command had not begun"
				}
				j.sayf("no longer elected (%s): %s", withoutPassword(lost.Error()), what)
			}
		})
	r.addTimes(cmd, sqllock.DefaultTTL, "a fifth")
	cmd.Flags().StringVar(&value, "value", "", "what the leader publishes, such as its address")
	return cmd
}

// campaign waits until elected. While the database cannot be reached it tries again.
func (j *job) campaign(ctx context.Context, e *election.Election[*sql.Tx], value []byte) (*election.Leader, error) {
	var said string
	for {
		leader, err := e.Campaign(ctx, value)
		if err == nil || ctx.Err() != nil || errors.Is(err, holdfast.ErrInvalid) || errors.Is(err, holdfast.ErrSchema) || errors.Is(err, sqllock.ErrOtherStore) {
			return leader, err
		}
		if text := withoutPassword(err.Error()); text != said {
			said = text
			j.sayf("not elected, trying again: %s", text)
		}
		pause := time.NewTimer(electPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

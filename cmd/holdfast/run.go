package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/sqllock"
)

// runsCommand marks commands of holdfast that run a command of the user.
const runsCommand = "runs a command"

// The variables that a command finds its lock in.
const (
	keyVariable            = "HOLDFAST_KEY"
	ownerVariable          = "HOLDFAST_OWNER"
	fencingTokenVariable   = "HOLDFAST_TOKEN"
	idempotencyKeyVariable = "HOLDFAST_IDEMPOTENCY_KEY"
)

// runFlags are the flags that lock, elect and once share.
type runFlags struct {
	*flags
	owner            string
	ttl, grace, wait time.Duration
}

// newRun returns a command that runs a command.
func (r *runFlags) newRun(name, short, long string, body func(ctx context.Context, cmd *cobra.Command, j *job) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: name + " [flags] KEY -- COMMAND [ARGUMENT...]", Short: short, Long: long, DisableFlagsInUseLine: true,
		Annotations: map[string]string{runsCommand: name},
		Args:        keyAndCommand,
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			if cmd.ArgsLenAtDash() < 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd, args[0], args[1:], body) },
	}
	cmd.Flags().StringVar(&r.owner, "owner", "", "the owner of the key (tenant, merchant or account), none where there is one only")
	mayBeEmpty(cmd.Flags(), "owner")
	return cmd
}

func (r *runFlags) addTimes(cmd *cobra.Command, ttl time.Duration, part string) {
	cmd.Flags().DurationVar(&r.ttl, "ttl", ttl, "how long the lock lasts from its last renewal, if holdfast or its machine dies")
	cmd.Flags().DurationVar(&r.grace, "grace", 0, "time between TERM and KILL when the lock is lost, 0: KILL at once (default: "+part+" of --ttl)")
}

func (r *runFlags) addWait(cmd *cobra.Command, what string) {
	cmd.Flags().DurationVar(&r.wait, "wait", 0, what+", 0: not at all (default: until interrupted)")
}

// keyAndCommand accepts KEY -- COMMAND. It does not quote arguments, because one may be a secret.
func keyAndCommand(cmd *cobra.Command, args []string) error {
	if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
		return fmt.Errorf("say holdfast %s KEY -- COMMAND: see %s --help", cmd.Name(), cmd.CommandPath())
	}
	return nil
}

// job is a command to run for a key, on an open database.
type job struct {
	*relay
	program
	cmd   *cobra.Command
	db    *holdfast.DB[*sql.Tx]
	key   string
	waits bool // for as long as it takes
}

func (r *runFlags) run(cmd *cobra.Command, key string, args []string, body func(ctx context.Context, cmd *cobra.Command, j *job) error) error {
	if strings.ContainsRune(key+r.owner, 0) {
		return usage("a key or an owner with a NUL byte cannot be given to a command")
	}
	if r.wait < 0 {
		return usage("--wait is negative")
	}
	var p program
	if len(args) > 0 {
		var err error
		if p, err = find(args); err != nil {
			return err
		}
	}
	p.in, p.out, p.err = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	signals := newRelay(cmd.Context())
	defer signals.close()
	cmd.SetContext(signals.waiting)
	err := r.with(cmd, func(ctx context.Context, db *holdfast.DB[*sql.Tx]) error {
		return body(ctx, cmd, &job{relay: signals, program: p, cmd: cmd, db: db, key: key, waits: !cmd.Flags().Changed("wait")})
	})
	if ended := signals.asked(); err != nil && ended != nil && !is[statusError](err) {
		return ended
	}
	return err
}

// setGrace sets the grace period to its default, and refuses one that is longer than most.
func (r *runFlags) setGrace(cmd *cobra.Command, fallback, most time.Duration) error {
	if !cmd.Flags().Changed("grace") {
		r.grace = fallback
	}
	if r.grace < 0 || r.grace > most {
		return usage("--grace is not between 0 and %v, for this --ttl", most)
	}
	return nil
}

// sayf writes a line to standard error.
func (j *job) sayf(format string, args ...any) {
	fmt.Fprintf(j.cmd.ErrOrStderr(), "holdfast: "+format+"\n", args...)
}

// ended returns the error for a command that holdfast did not end.
func ended(c *child) error {
	if c.status == exitOK {
		return nil
	}
	return statusError{status: c.status}
}

// underLease runs the command while a lease lasts, and releases it. lost says that the lease ended
// first. With over, too, the command had ended by itself, and the release found that out; with err, too, the command was not run.
func (j *job) underLease(ctx context.Context, lease *sqllock.Lease, owner string) (over *child, lost, err error) {
	p := j.program
	p.env = environment(keyVariable, j.key, ownerVariable, owner, fencingTokenVariable, strconv.FormatInt(lease.Token(), 10))
	c, lost, err := j.run(lease.Context(), p) //nolint:contextcheck // it ends with the lease
	if lost != nil {
		return nil, lost, nil
	}
	lost = j.release(ctx, lease)
	switch {
	case err != nil && lost == nil && errors.Is(err, sqllock.ErrLost): // the lease's context ended, and its row had time left
		return nil, err, err
	case err != nil:
		return nil, lost, err
	case lost != nil:
		return c, lost, nil
	}
	return c, nil, ended(c)
}

// hold prints the token of a lease, and holds it until a signal comes. lost is as in underLease.
func (j *job) hold(ctx context.Context, lease *sqllock.Lease) (lost error) {
	_, _ = fmt.Fprintln(j.out, lease.Token())
	select {
	case <-ctx.Done():
		return j.release(ctx, lease)
	case <-lease.Context().Done():
		return context.Cause(lease.Context()) //nolint:contextcheck // it ends with the lease
	}
}

// release returns an error if the lease had ended before.
func (j *job) release(ctx context.Context, lease *sqllock.Lease) (lost error) {
	err := lease.Release(context.WithoutCancel(ctx))
	if err == nil || errors.Is(err, sqllock.ErrLost) {
		return err
	}
	what := "the lock was not released and ends with its TTL"
	if errors.Is(err, holdfast.ErrUnknown) {
		what = "the lock is not held any more, and it is not known whether it was held until now"
	}
	j.sayf("%s: %s", what, withoutPassword(err.Error()))
	return nil
}

// describeRunStatuses lists the exit statuses of lock, elect and once.
func describeRunStatuses() string {
	var b strings.Builder
	for _, m := range runMeanings {
		fmt.Fprintf(&b, "  %s  %s\n", m.name(), m.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

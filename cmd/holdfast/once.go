package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
)

const onceLong = `Run a command once for KEY, keep its exit status, and answer every later call with it.

A call that comes while the command runs waits for its end. The command finds in its environment
$HOLDFAST_KEY, $HOLDFAST_OWNER, $HOLDFAST_TOKEN, and $HOLDFAST_IDEMPOTENCY_KEY, which is the same in every
attempt and is meant for the service that it calls.

A command that ended with any status has run. Where its end is not known (a signal killed it, holdfast or
its machine died, the lock was lost), it is not run again: the status is 122 until an operator says what
happened, with holdfast ops resolve. --retry says otherwise; then the command may run more than once.
See docs/howto/shell.md.`

const (
	onceName = "once"
	// onceStep is the step of the operation that is the command.
	onceStep  = "command"
	onceLease = time.Minute
	// onceTimeout is the longest that a command may run.
	onceTimeout = 30 * 24 * time.Hour
	// onceWait is as good as without end.
	onceWait  = 365 * 24 * time.Hour
	maxOutput = 512 << 10

	retryUnknown = "unknown"
	retryFailed  = "failed"
)

// onceResult is what is kept of a command.
type onceResult struct {
	Status int    `json:"status"`
	Output []byte `json:"output,omitempty"`
	// Cut says that there was more output than is kept.
	Cut bool `json:"cut,omitempty"`
}

// onceFlags are the flags of once.
type onceFlags struct {
	runFlags

	name, namespace string
	retry           []string
	keyTTL          time.Duration
	output          int
}

func newOnce(f *flags) *cobra.Command {
	o := &onceFlags{runFlags: runFlags{flags: f}}
	var retry string
	cmd := o.newRun("once", "Run a command once for a key, and keep its exit status", onceLong,
		func(ctx context.Context, cmd *cobra.Command, j *job) error {
			if retry != "" {
				o.retry = strings.Split(retry, ",")
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			j.grace = o.grace
			return o.once(ctx, j)
		})
	o.addTimes(cmd, onceLease, "a twentieth")
	o.addWait(cmd, "how long to wait for another process that runs it")
	cmd.Flags().StringVar(&o.name, "name", onceName, "the operation's name, as holdfast ops shows it")
	addNamespace(cmd.Flags(), &o.namespace)
	cmd.Flags().DurationVar(&o.keyTTL, "key-ttl", 0, "how long the key is kept after the command's end; then it may run again (default: for ever)")
	cmd.Flags().IntVar(&o.output, "keep-output", 0, fmt.Sprintf("keep so many bytes of standard output, too, and write them again: 0 to %d", maxOutput))
	someOf(cmd, &retry, "retry", "", "run the command again where its end is",
		retryUnknown+"\ta signal killed it, or holdfast died", retryFailed+"\ta status above 0")
	return cmd
}

func (o *onceFlags) check(cmd *cobra.Command) error {
	for _, r := range o.retry {
		if r != retryUnknown && r != retryFailed {
			return usage("--retry is %s, %s, or both with a comma", retryUnknown, retryFailed)
		}
	}
	if o.output < 0 || o.output > maxOutput {
		return usage("--keep-output is not between 0 and %d", maxOutput)
	}
	return o.setGrace(cmd, o.ttl/20, o.ttl/10) //nolint:mnd // what the flags say
}

// attempt is what this process saw of the command.
type attempt struct {
	ran   *child
	lost  error
	err   error         // why it did not run
	ended chan struct{} // closed when all of it is known
}

// errNotStored is the outcome when the database does not answer after the command's end.
var errNotStored = fmt.Errorf("the database does not answer, so the end of the command is not stored: %w", idempotency.ErrUnknown)

func (o *onceFlags) once(ctx context.Context, j *job) error {
	store, err := idempotency.New(ctx, j.db, idempotency.Options{
		Namespace: o.namespace, ResultTTL: o.keyTTL, KeyTTL: o.keyTTL,
	})
	if err != nil {
		return err
	}
	saw := attempt{ended: make(chan struct{})}
	call := staged.ExternalCall[onceResult]{Step: onceStep, Timeout: onceTimeout}
	if slices.Contains(o.retry, retryUnknown) {
		call.OnLeaseEnd = staged.TakeOver
	}
	runner, err := staged.New(store, staged.Workflow[struct{}, onceResult, *sql.Tx]{
		Name: o.name, Lease: o.ttl, MaxAttempts: 1_000_000, Backoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Run: func(ctx context.Context, run *staged.Run[*sql.Tx], _ struct{}) (onceResult, error) {
			return staged.Call(ctx, run, call, func(ctx context.Context, key string) (onceResult, error) {
				return o.attempt(ctx, j, key, run.Token(), &saw)
			})
		},
	})
	if err != nil {
		return err
	}
	op := idempotency.Op{Owner: o.owner, Key: j.key, Fingerprint: []byte(strings.Join(j.args, "\x00")), Wait: cmp.Or(o.wait, holdfast.NoWait)}
	if j.waits {
		op.Wait = onceWait
	}
	res, err := o.bounded(&saw, func() (idempotency.Result[onceResult], error) { return runner.Do(ctx, op, struct{}{}) })
	if err != nil {
		return o.explain(j, &saw, err)
	}
	if res.Outcome == idempotency.Replayed {
		if err := replay(j, res.Value); err != nil {
			return err
		}
	}
	if res.Value.Status != exitOK {
		return statusError{status: res.Value.Status}
	}
	return nil
}

// bounded returns what do returns. It does not wait for a database that does not answer: for as long as
// the lease may live after the command's end, and shortly if it was lost.
func (o *onceFlags) bounded(saw *attempt, do func() (idempotency.Result[onceResult], error)) (res idempotency.Result[onceResult], err error) {
	returned := make(chan struct{})
	var got idempotency.Result[onceResult]
	var gotErr error
	go func() {
		defer close(returned)
		got, gotErr = do()
	}()
	select {
	case <-returned:
		return got, gotErr
	case <-saw.ended:
	}
	bound := o.ttl
	if saw.lost != nil {
		bound = core.CleanupTimeout
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-returned:
		return got, gotErr
	case <-late.C:
		return res, errNotStored
	}
}

// attempt runs the command.
func (o *onceFlags) attempt(ctx context.Context, j *job, key string, token int64, saw *attempt) (onceResult, error) {
	p, kept := j.program, &head{left: o.output}
	p.env = environment(keyVariable, j.key, ownerVariable, o.owner, fencingTokenVariable, strconv.FormatInt(token, 10), idempotencyKeyVariable, key)
	if o.output > 0 {
		p.out = io.MultiWriter(p.out, kept)
	}
	saw.ran, saw.lost, saw.err = j.run(ctx, p)
	close(saw.ended) // an operation makes the attempt once
	c := saw.ran
	switch {
	case saw.err != nil:
		return onceResult{}, staged.NotDone(saw.err)
	case saw.lost != nil:
		return onceResult{}, fmt.Errorf("the command was ended because the lock was lost: %w", saw.lost)
	case c.killed:
		return onceResult{}, fmt.Errorf("signal %d ended the command", c.status-exitSignal)
	case c.status != exitOK && slices.Contains(o.retry, retryFailed):
		return onceResult{}, staged.NotDone(ended(c))
	}
	return onceResult{Status: c.status, Output: kept.bytes, Cut: kept.cut}, nil
}

// explain returns the exit status for an error of the operation.
func (o *onceFlags) explain(j *job, saw *attempt, err error) error {
	var rejected *idempotency.Rejection
	switch {
	case saw.err != nil:
		return saw.err
	case saw.ran != nil && saw.lost == nil && !saw.ran.killed && saw.ran.status != exitOK && slices.Contains(o.retry, retryFailed):
		return ended(saw.ran)
	case errors.Is(err, staged.ErrStale) || saw.lost != nil && errors.Is(err, idempotency.ErrUnknown) && slices.Contains(o.retry, retryUnknown):
		return statusError{exitLost, fmt.Errorf("the lock was lost while the command ran: %w", err)}
	case errors.Is(err, idempotency.ErrMismatch):
		return statusError{exitOther, err}
	case errors.Is(err, idempotency.ErrInProgress):
		return statusError{exitHeld, err}
	case errors.As(err, &rejected):
		return statusError{exitNotRun, fmt.Errorf("an operator has rejected it: %w", err)}
	case errors.Is(err, idempotency.ErrUnknown), errors.Is(err, idempotency.ErrExpired), saw.ran != nil:
		if saw.ran != nil && saw.lost == nil {
			j.sayf("the command ended with status %d", saw.ran.status)
		}
		return statusError{exitUnknown, err}
	}
	return err
}

// replay writes the output of the command that ran.
func replay(j *job, r onceResult) error {
	if _, err := j.out.Write(r.Output); err != nil {
		return err
	}
	if r.Cut {
		j.sayf("the command wrote more than was kept")
	}
	return nil
}

// head keeps the first bytes that are written to it.
type head struct {
	bytes []byte
	left  int
	cut   bool
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.left)
	h.bytes, h.left = append(h.bytes, b[:n]...), h.left-n
	h.cut = h.cut || n < len(b)
	return len(b), nil
}

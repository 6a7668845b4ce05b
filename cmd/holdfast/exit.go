package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dsn"
)

// The exit statuses.
const (
	exitOK = iota
	exitFailed
	exitUsage
	exitBroken
	exitPending
)

// The exit statuses of lock, elect and once that are not the command's own. The last four, and 128
// and above, are those of env, timeout and the shells.
const (
	exitLost = 121 + iota
	exitUnknown
	exitOther
	exitHeld
	exitNotRun
	exitCannotRun
	exitNotFound
	exitSignal // and the number of the signal
)

// exitMeaning says what an exit status means. Status 128 stands for the ones above, too.
type exitMeaning struct {
	status  int
	meaning string
}

func (m exitMeaning) name() string {
	if m.status == exitSignal {
		return "128 + n"
	}
	return strconv.Itoa(m.status)
}

var exitMeanings = []exitMeaning{
	{exitOK, "done"},
	{exitFailed, "it was tried, and failed or was interrupted"},
	{exitUsage, "the command line, the environment or a file that they name is wrong; nothing was done"},
	{exitBroken, "doctor, prove: a promise is broken; audit verify: a row is not as it was written"},
	{exitPending, "migrate status: a migration is not applied, or was cut off: holdfast migrate up"},
}

// runMeanings are the exit statuses of lock, elect and once.
var runMeanings = []exitMeaning{
	{exitLost, "lock, once: the lock was lost while the command ran; the command was ended"},
	{exitUnknown, "once: it is not known how the command ended, or its status is no longer kept; it was not run again"},
	{exitOther, "once: the key belongs to another command"},
	{exitHeld, "lock, once: another has the key, and --wait is over"},
	{exitNotRun, "the command was not run: holdfast failed, or its command line is wrong"},
	{exitCannotRun, "the command was found and cannot be run"},
	{exitNotFound, "the command was not found"},
	{exitSignal, "signal n ended the command, or holdfast before it ran the command"},
}

// triedError is an error of a command that had started. An error without it was found before.
type triedError struct{ error }

func (e triedError) Unwrap() error { return e.error }

// usageError is an error in the command line, found by a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// checkLimit checks a --limit.
func checkLimit(n int) error {
	if n < 1 {
		return usage("--limit is at least 1")
	}
	return nil
}

// brokenError is the result of doctor or prove when checks failed.
type brokenError int

func (n brokenError) Error() string {
	if n == 1 {
		return "1 promise is broken"
	}
	return fmt.Sprintf("%d promises are broken", int(n))
}

// pendingError is the result of migrate status when there is something to do.
type pendingError struct{ text string }

func (e pendingError) Error() string { return e.text }

// markTried marks errors of a command's work, to separate them from errors of its flags.
func markTried(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return triedError{err}
			}
			return nil
		}
	}
	for _, below := range cmd.Commands() {
		markTried(below)
	}
}

// statusError is the end of a command that lock, elect or once ran, or the reason why it did not
// run. Without an error the status says everything.
type statusError struct {
	status int
	err    error
}

func (e statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e statusError) Unwrap() error { return e.err }

// statusOf returns the exit status for an error of cmd.
func statusOf(cmd *cobra.Command, err error) int {
	var e statusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &e):
		return e.status
	case cmd != nil && cmd.Annotations[runsCommand] != "":
		return exitNotRun // the others may be the command's own
	case is[brokenError](err):
		return exitBroken
	case is[pendingError](err):
		return exitPending
	case !is[triedError](err), is[usageError](err), errors.Is(err, holdfast.ErrInvalid), errors.Is(err, dsn.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

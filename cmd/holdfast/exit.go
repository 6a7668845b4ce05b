package main

import (
	"errors"
	"fmt"

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
)

var exitMeanings = [...]string{
	exitOK:     "done",
	exitFailed: "it was tried, and failed or was interrupted",
	exitUsage:  "the command line, the environment or a file that they name is wrong; nothing was done",
	exitBroken: "doctor, prove: a promise is broken",
}

// triedError is an error of a command that had started. An error without it was found before.
type triedError struct{ error }

func (e triedError) Unwrap() error { return e.error }

// usageError is an error in the command line, found by a command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// brokenError is the result of doctor or prove when checks failed.
type brokenError int

func (n brokenError) Error() string {
	if n == 1 {
		return "1 promise is broken"
	}
	return fmt.Sprintf("%d promises are broken", int(n))
}

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

// statusOf returns the exit status for an error.
func statusOf(err error) int {
	switch {
	case err == nil:
		return exitOK
	case is[brokenError](err):
		return exitBroken
	case !is[triedError](err), is[usageError](err), errors.Is(err, holdfast.ErrInvalid), errors.Is(err, dsn.ErrInvalid):
		return exitUsage
	}
	return exitFailed
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// childGrace is how long an interrupted command may take to end by itself.
const childGrace = 10 * time.Second

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return e.signal.String() }

// status is the exit status of a process that the signal ended, as shells have it.
func (e signalError) status() int { return 128 + int(e.signal) }

// runChild runs the command and returns its exit status. When ctx ends first,
// the command and all that it started in its process group are ended.
func runChild(ctx context.Context, command []string, dir string, env []string) int {
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // the user's own command; the group is signalled below
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = ownGroup(nil)
	if err := cmd.Start(); err != nil {
		logf("%v", err)
		return 127
	}
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = cmd.Wait()
	}()

	select {
	case <-ended:
		return exitStatus(failure)
	case <-ctx.Done():
	}
	sig := syscall.SIGTERM
	var interrupted signalError
	if errors.As(context.Cause(ctx), &interrupted) {
		sig = interrupted.signal
	}
	_ = syscall.Kill(-cmd.Process.Pid, sig)
	select {
	case <-ended:
	case <-time.After(childGrace):
		logf("the command does not end on %v: killing it", sig)
	}
	// Whatever of the group is still there, go test's own children for one.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	return 128 + int(sig)
}

// exitStatus turns the error of a finished command into an exit status.
func exitStatus(err error) int {
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		logf("%v", fmt.Errorf("wait for the command: %w", err))
		return 1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

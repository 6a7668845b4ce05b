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

// childGrace is how long an interrupted command may take to exit.
const childGrace = 10 * time.Second

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return e.signal.String() }

// status returns the exit status of a process that the signal ended, as shells report it.
func (e signalError) status() int { return 128 + int(e.signal) }

// runChild runs the command and returns its exit status. When ctx ends first, it ends the
// command and every process in its process group.
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
	// Kill the remaining processes of the group, such as go test's children.
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

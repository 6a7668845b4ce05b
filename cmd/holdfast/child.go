package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// childIO bounds the wait for output that a command's own children still hold open after it has
// ended. It matters only where the output is kept.
const childIO = 5 * time.Second

// program is a command to run.
type program struct {
	path string
	args []string
	env  []string
	in   io.Reader
	out  io.Writer
	err  io.Writer
	// grace is the time between TERM and KILL when the command has to end.
	grace time.Duration
}

// find returns the program for a command line, or why it cannot run.
func find(args []string) (program, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return program{}, notRun(err)
	}
	return program{path: path, args: args}, nil
}

// notRun returns the error for a command that could not be started.
func notRun(err error) error {
	status := exitCannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	return statusError{status, fmt.Errorf("the command was not run: %w", err)}
}

// child is a command that runs.
type child struct {
	program
	cmd *exec.Cmd
	// group reports that the command leads its own process group. A terminal's jobs share the
	// group of holdfast, which the terminal signals.
	group bool

	mu   sync.Mutex // held while a signal is sent, and while the command is waited for
	over bool

	ended  chan struct{}
	status int
	killed bool // by a signal
}

// start starts a program. On Linux and FreeBSD it is killed when this process is.
func start(ctx context.Context, p program) (*child, error) {
	c := &child{program: p, ended: make(chan struct{})}
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), p.path) //nolint:gosec // the user's command
	c.cmd.Args, c.cmd.Env = p.args, p.env
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = p.in, p.out, p.err
	c.cmd.WaitDelay = childIO
	c.group = c.prepare()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the command is killed when the thread ends that started it
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, notRun(err)
	}
	return c, nil
}

func (c *child) wait() {
	_ = c.cmd.Wait() // the state says it
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	state := c.cmd.ProcessState
	c.status = state.ExitCode()
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		c.status, c.killed = exitSignal+int(ws.Signal()), true
	}
	close(c.ended)
}

// during waits for the end of the command, and ends it when ctx ends. It returns ctx's cause if
// the command was still running then.
func (c *child) during(ctx context.Context) error {
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-c.ended: // a stopped process finds both when it wakes up
		return nil
	default:
	}
	c.end()
	return context.Cause(ctx)
}

// end asks the command to end, and kills it after the grace period: with all of its group, if that
// is its own.
func (c *child) end() {
	late := time.NewTimer(c.grace)
	defer late.Stop()
	if c.grace > 0 {
		c.signal(syscall.SIGTERM)
		c.wake()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ended := c.ended; ended != nil || !c.groupIsEmpty(); {
			select {
			case <-ended:
				ended = nil // what it started may still be at it
				continue
			case <-tick.C:
				continue
			case <-late.C:
			}
			break
		}
	}
	c.signal(syscall.SIGKILL)
	<-c.ended
}

// environment returns the environment of holdfast and the given names and values.
func environment(values ...string) []string {
	env := os.Environ()
	for pair := range slices.Chunk(values, 2) {
		env = append(env, pair[0]+"="+pair[1])
	}
	return env // of two values the last one counts
}

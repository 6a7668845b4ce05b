package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// child is this program, started once more as a replica or a client.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // what it prints, closed when it prints no more

	mu sync.Mutex // one line at a time on stdin
}

// environmentURL hands the database URL to a child: arguments are seen by
// every user of the machine, and the URL has a password.
const environmentURL = "REFUND_EXAMPLE_DSN"

func startChild(url string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it again: %w", err)
	}
	cmd := exec.Command(self, args...) //nolint:gosec,noctx // this program itself; it is ended by kill, and by the end of its standard input
	cmd.Env = append(os.Environ(), environmentURL+"="+url)
	cmd.Stderr = os.Stderr
	dieWithParent(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	c := &child{cmd: cmd, stdin: stdin, lines: make(chan string, 64)}
	go func() {
		defer close(c.lines)
		scanner := bufio.NewScanner(stdout)
		for scanner.Scan() {
			c.lines <- scanner.Text()
		}
	}()
	return c, nil
}

// tell sends a line. A child that is gone is noticed by the end of its lines.
func (c *child) tell(words ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintln(c.stdin, words...)
}

// kill ends the child with SIGKILL, which it cannot know of beforehand, and
// waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for range c.lines { // Wait wants the pipe to have been read
	}
	_ = c.cmd.Wait() // "killed" is what it says
}

// followParent is the other half: it reads the parent's lines until the
// parent closes the pipe or dies, and then calls gone.
func followParent(gone func(), heard func(words []string)) {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		heard(strings.Fields(scanner.Text()))
	}
	gone()
}

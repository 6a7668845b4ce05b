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

// child is this program, started again as a replica or a client.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // the lines that it prints, closed at the end of its output

	mu sync.Mutex // serializes the lines on stdin
}

// environmentURL passes the database URL to a child, because every user of the machine can see
// arguments and the URL contains a password.
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

// tell sends a line. If the child is gone, the end of its lines shows it.
func (c *child) tell(words ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintln(c.stdin, words...)
}

// kill ends the child with SIGKILL, without warning, and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for range c.lines { // Wait requires that the pipe was read
	}
	_ = c.cmd.Wait() // "killed" is what it says
}

// followParent runs in the child: it reads the parent's lines until the parent closes the pipe or
// dies, and then calls gone.
func followParent(gone func(), heard func(words []string)) {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		heard(strings.Fields(scanner.Text()))
	}
	gone()
}

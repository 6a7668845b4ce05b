// Package process starts the processes of the examples, which are killed while they work.
package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// Process is a started program. It ends when its standard input does, or with this process.
type Process struct {
	// Lines are the whole lines that it prints, closed at the end of its output.
	Lines <-chan string

	cmd *exec.Cmd
	in  io.WriteCloser

	mu sync.Mutex // serializes the lines on its standard input
}

// Self returns the command that starts this program again. Its environment has the value of a variable too:
// every user of the machine can see arguments, and the URL of a database contains a password.
func Self(variable, value string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it again: %w", err)
	}
	cmd := exec.Command(self, args...) //nolint:gosec,noctx // this program itself; it is ended by Kill and by the end of its standard input
	cmd.Env = append(os.Environ(), variable+"="+value)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// Start starts a command.
func Start(cmd *exec.Cmd) (*Process, error) {
	dieWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	lines := make(chan string, 64)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return // a process that is killed may have written a part of a line
			}
			lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	return &Process{Lines: lines, cmd: cmd, in: in}, nil
}

// Tell sends a line. If the process is gone, the end of its Lines shows it.
func (p *Process) Tell(words ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintln(p.in, words...)
}

// Kill ends the process with SIGKILL, without warning.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Stop kills the process and waits until it is gone.
func (p *Process) Stop() {
	p.Kill()
	_ = p.Wait() // "killed" is what it says
}

// Wait waits until the process has ended. What it still prints is dropped.
func (p *Process) Wait() error {
	for range p.Lines { // the pipe has to be read to its end
	}
	return p.cmd.Wait()
}

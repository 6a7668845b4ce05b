//go:build unix

package campaign

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// A process is a client, together with the processes that replace it after a kill.
type process struct {
	c     *campaign
	order order // of the current process

	mu    sync.Mutex
	cmd   *exec.Cmd // nil while there is none
	in    io.WriteCloser
	ended chan struct{}
	over  bool // it reported an orderly end
	next  int  // the first epoch that it has not finished
	moved bool // its wall clock may have moved
	last  string
}

// start starts the next process.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil
	}
	p.next, p.moved = p.order.epoch(), false
	text, err := json.Marshal(p.order)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), clientVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.in, p.ended = cmd, in, ended
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.hear(cmd, lines.Text())
		}
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// hear handles a line from a process.
func (p *process) hear(from *exec.Cmd, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var epoch int
	switch _, err := fmt.Sscanf(line, "done %d", &epoch); {
	case from != p.cmd: // the process was killed
	case err == nil:
		p.next = epoch + 1
	case line == "clock 0":
		p.moved = false
	case line == "over":
		p.over = true
	case strings.HasPrefix(line, "closing"): // the server was just gone
	default:
		p.last = line
	}
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.cmd = nil
	if cmd != nil {
		_ = cmd.Process.Kill()
		p.order.Life++
	}
	p.mu.Unlock()
	if cmd != nil {
		<-ended
	}
}

// stop stops the process for a while.
func (p *process) stop(d <-chan time.Time) {
	p.mu.Lock()
	cmd, life := p.cmd, p.order.Life
	from := history.Now()
	if cmd != nil {
		_ = cmd.Process.Signal(syscall.SIGSTOP)
	}
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	// The end of the pause is not known while it lasts, but the judge needs the pause now.
	pause := p.c.paused(p.order.Client, life, from)
	<-d
	_ = cmd.Process.Signal(syscall.SIGCONT)
	p.c.resumed(pause, 0)
}

// say sends a line to the current process, and returns the number of that process.
func (p *process) say(line string) (life int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.moved = p.moved || strings.HasPrefix(line, "clock")
		_, _ = fmt.Fprintln(p.in, line)
	}
	return p.order.Life
}

// isMoved reports whether that process's wall clock may still be moved.
func (p *process) isMoved(life int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && p.order.Life == life && p.moved
}

// quit lets the process end in order, and kills it if that takes too long.
func (p *process) quit(patience time.Duration) error {
	p.say("quit")
	return p.wait(patience)
}

// wait waits until the process has ended in order, and kills it if that takes too long.
func (p *process) wait(patience time.Duration) error {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	select {
	case <-ended:
	case <-time.After(patience):
	}
	p.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		return fmt.Errorf("client %d did not end in order within %v; it said last: %s", p.order.Client, patience, p.last)
	}
	return nil
}

// unfinished returns the first epoch to which the process may still add.
func (p *process) unfinished() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return p.order.epoch()
	}
	return p.next
}

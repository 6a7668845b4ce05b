//go:build unix

package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Stop sends SIGSTOP and returns once every thread of the process stands. The signal alone does not show that: on a
// busy machine a thread may still begin a transaction, and stop inside it. Without /proc it only sends the signal.
func Stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(Hang); ; time.Sleep(time.Millisecond) {
		moving := running(p.Pid)
		if moving == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d does not stop: %s", p.Pid, moving)
		}
	}
}

// running returns the state of a thread that is neither stopped nor ended; empty for none.
func running(pid int) string {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		text, err := os.ReadFile(file)
		_, state, _ := strings.Cut(string(text), ") ")
		if err == nil && state != "" && !strings.ContainsAny(state[:1], "TtZX") {
			return string(text)
		}
	}
	return ""
}

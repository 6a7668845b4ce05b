//go:build linux

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// process is a server or a client that ends when this process ends, in any way.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start starts cmd. The kernel kills cmd when the thread that started it ends, so that thread
// waits for cmd.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true
	p := &process{cmd, make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if log, ok := cmd.Stderr.(*os.File); ok && t.Failed() && log != os.Stderr {
			said, _ := os.ReadFile(log.Name())
			t.Logf("%s ends with\n%s", log.Name(), said[max(0, len(said)-3000):])
		}
	})
	return p
}

// kill is kill -9, also of the processes that this one started. It returns when all of them have ended: a
// child outlives its parent for a moment, and holds the server's shared memory as long.
func (p *process) kill() {
	if p.ended() {
		return
	}
	p.signal(syscall.SIGSTOP) // otherwise it could start others now
	of := children(p.cmd.Process.Pid)
	p.signal(syscall.SIGKILL)
	<-p.done
	for end := time.Now().Add(dbtest.Hang); slices.ContainsFunc(of, lives) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// lives reports whether a process holds anything yet. A zombie, whose parent has not read its end, does not.
func lives(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func (p *process) signal(s syscall.Signal) {
	select {
	case <-p.done:
		return
	default:
	}
	all := append([]int{p.cmd.Process.Pid}, children(p.cmd.Process.Pid)...)
	for _, pid := range all {
		_ = syscall.Kill(pid, s)
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// children lists the processes that pid started.
func children(pid int) (list []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var child, parent int
		var state string
		_, rest, _ := strings.Cut(string(text), ") ")
		if _, err := fmt.Sscan(string(text), &child); err != nil {
			continue
		}
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil && parent == pid {
			list = append(list, child)
		}
	}
	return list
}

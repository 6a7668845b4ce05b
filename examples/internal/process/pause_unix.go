//go:build unix

package process

import "syscall"

// Pause stops the process where it stands. It returns false if it cannot.
func (p *Process) Pause() bool { return p.cmd.Process.Signal(syscall.SIGSTOP) == nil }

// Resume lets a paused process go on.
func (p *Process) Resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child if this process dies. It also keeps the terminal's
// Ctrl-C from the child, because the parent ends its children itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// pause stops a process where it stands, and resume lets it go on.
func pause(p *os.Process) bool { return p.Signal(syscall.SIGSTOP) == nil }
func resume(p *os.Process)     { _ = p.Signal(syscall.SIGCONT) }

package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child if this process dies. It also keeps the terminal's
// Ctrl-C from the child, because the parent ends its children itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

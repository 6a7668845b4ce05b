package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the child should this process die, and
// keeps the terminal's Ctrl-C from it: the parent ends its children itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

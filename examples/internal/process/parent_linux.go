package process

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the process if this one dies. It also keeps the terminal's
// Ctrl-C from it, because the parent ends its processes itself.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

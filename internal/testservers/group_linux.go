package main

import "syscall"

// ownGroup puts a process into a group of its own, out of reach of the
// terminal's Ctrl-C, which this program passes on in its own order. Should this
// program be killed outright, the process goes with it.
func ownGroup(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: as, Pdeathsig: syscall.SIGKILL}
}

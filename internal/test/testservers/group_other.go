//go:build unix && !linux

package main

import "syscall"

// ownGroup puts a process into a new process group, so that the terminal's Ctrl-C does not reach
// it; this program forwards the signal when it is ready.
func ownGroup(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: as}
}

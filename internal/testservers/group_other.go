//go:build unix && !linux

package main

import "syscall"

// ownGroup puts a process into a group of its own, out of reach of the
// terminal's Ctrl-C, which this program passes on in its own order.
func ownGroup(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: as}
}

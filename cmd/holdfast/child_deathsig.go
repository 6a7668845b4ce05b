//go:build linux || freebsd

package main

import "syscall"

// dieWithParent has the kernel kill the command when this process is killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

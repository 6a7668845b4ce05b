//go:build unix && !linux && !freebsd

package main

import "syscall"

// dieWithParent does nothing: the kernel has no such wish.
func dieWithParent(*syscall.SysProcAttr) {}

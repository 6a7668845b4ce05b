//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing here: the child ends when its standard input closes.
func dieWithParent(*exec.Cmd) {}

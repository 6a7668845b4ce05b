//go:build !linux

package main

import (
	"os"
	"os/exec"
)

// dieWithParent does nothing here: the child ends when its standard input closes.
func dieWithParent(*exec.Cmd) {}

// pause does nothing here: the storm kills only.
func pause(*os.Process) bool { return false }
func resume(*os.Process)     {}

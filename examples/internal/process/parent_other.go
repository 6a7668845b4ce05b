//go:build !linux

package process

import "os/exec"

// dieWithParent does nothing here: the process ends when its standard input closes.
func dieWithParent(*exec.Cmd) {}

//go:build !unix

package main

import (
	"os"
	"syscall"
)

var relayed = []os.Signal{os.Interrupt, syscall.SIGTERM}

func endsProgram(os.Signal) bool { return true }

func numberOf(sig os.Signal) int {
	s, _ := sig.(syscall.Signal)
	return int(s)
}

// prepare does nothing: there are no process groups.
func (*child) prepare() (group bool) { return false }

// relay passes nothing on: the console sends its signals to every process.
func (*child) relay(os.Signal) {}

// signal kills the command, because there is no other signal.
func (c *child) signal(os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		_ = c.cmd.Process.Kill()
	}
}

func (*child) wake() {}

func (*child) groupIsEmpty() bool { return true }

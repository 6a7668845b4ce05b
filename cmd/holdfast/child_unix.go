//go:build unix

package main

import (
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// relayed are the signals that a command gets from holdfast.
var relayed = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

// endingSignals ask a command to end. All of its process group get them, as on a terminal.
var endingSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGKILL}

// terminalSignals are those that a terminal sends to all processes of its foreground job.
var terminalSignals = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP}

// endsProgram reports whether a signal ends a program that does not handle it otherwise.
func endsProgram(sig os.Signal) bool { return sig != syscall.SIGUSR1 && sig != syscall.SIGUSR2 }

func numberOf(sig os.Signal) int {
	s, _ := sig.(syscall.Signal)
	return int(s)
}

// prepare gives the command its own process group, unless there is a terminal: there the
// group is the job, which the shell stops, continues and brings to the foreground.
func (c *child) prepare() (group bool) {
	tty := openTerminal()
	if tty != nil {
		_ = tty.Close()
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: tty == nil}
	dieWithParent(c.cmd.SysProcAttr)
	return tty == nil
}

// openTerminal opens the terminal that controls this process, nil for none.
func openTerminal() *os.File {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return tty
}

// inForeground reports whether this process is of the job that its terminal sends signals to.
func inForeground() bool {
	tty := openTerminal()
	if tty == nil {
		return false
	}
	defer func() { _ = tty.Close() }()
	job, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && job == unix.Getpgrp()
}

// relay passes a signal on that holdfast got. The command has it already if the terminal sent it.
func (c *child) relay(sig os.Signal) {
	if !c.group && slices.Contains(terminalSignals, sig) && inForeground() {
		return
	}
	c.signal(sig)
}

// signal sends a signal to the command, and to its process group if the signal is to end it.
func (c *child) signal(sig os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group && slices.Contains(endingSignals, sig) {
		_ = unix.Kill(-c.cmd.Process.Pid, syscall.Signal(numberOf(sig))) // it may have ended
		return
	}
	if !c.over {
		_ = c.cmd.Process.Signal(sig)
	}
}

// wake continues a command that is stopped, so that it can end.
func (c *child) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group {
		_ = unix.Kill(-c.cmd.Process.Pid, syscall.SIGCONT)
	} else if !c.over {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// groupIsEmpty reports whether nothing is left of the command's own process group.
func (c *child) groupIsEmpty() bool {
	return !c.group || errors.Is(unix.Kill(-c.cmd.Process.Pid, 0), unix.ESRCH)
}

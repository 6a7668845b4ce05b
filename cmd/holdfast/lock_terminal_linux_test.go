package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// onTerminal starts holdfast as a shell does on a terminal: in a session that the terminal controls.
func (s shop) onTerminal(tty *os.File, args ...string) *process {
	s.Helper()
	return s.startAs(&syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}, tty, args...)
}

// TestRunTerminal checks that Ctrl-C reaches a command once, which may go on, and that it reads its
// terminal.
func TestRunTerminal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"lock", "elect", "once"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, dbtest.SQLite)
			screen := newTerminal(t)
			p := s.onTerminal(screen.File, name, "k", "--", "sh", "-c",
				`n=0; trap 'n=$((n+1)); echo "interrupt $n"' INT; echo ready; while ! read line; do :; done; echo "read $line"; exit $((40 + n))`)
			s.eventually("the command runs", func() bool { return strings.Contains(screen.text(), "ready") })
			if _, err := screen.master.WriteString("\x03"); err != nil {
				t.Fatal(err)
			}
			s.eventually("it was interrupted", func() bool { return strings.Contains(screen.text(), "interrupt 1") })
			if _, err := screen.master.WriteString("now\n"); err != nil {
				t.Fatal(err)
			}
			p.endsWith(41)
			s.eventually("it read its terminal", func() bool { return strings.Contains(screen.text(), "read now") })
		})
	}
}

// TestRunTerminalFull checks that Ctrl-C ends a command whose terminal takes no more output, and
// holdfast with it.
func TestRunTerminalFull(t *testing.T) {
	t.Parallel()
	s := newShop(t, dbtest.SQLite)
	master, slave := terminalPair(t)
	t.Cleanup(func() { _, _ = slave.Close(), master.Close() })
	p := s.onTerminal(slave, "lock", "k", "--", "sh", "-c", `echo "0:$$" >> "$0"; exec yes`, s.file("f"))
	_, pid := s.held(s.line("f", 1))
	s.eventually("the terminal is full", func() bool { return stuck(pid, "yes") })
	if _, err := master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	p.endsWith(exitSignal + int(syscall.SIGINT))
	s.gone(pid)
}

// stuck reports whether a process runs a program and sleeps, as one does whose output goes nowhere.
func stuck(pid int, program string) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), "("+program+") S ")
}

// TestRunTerminalWait checks that Ctrl-C ends a wait.
func TestRunTerminalWait(t *testing.T) {
	t.Parallel()
	s := newShop(t, dbtest.SQLite)
	holder := s.start(append([]string{"lock", "k"}, s.sleeps("holder")...)...)
	s.line("holder", 1)
	screen := newTerminal(t)
	p := s.onTerminal(screen.File, "lock", "k", "--", "true")
	p.opened()
	if _, err := screen.master.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	p.endsWith(exitSignal + int(syscall.SIGINT))
	holder.signal(syscall.SIGTERM)
	holder.status()
}

//go:build unix

package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/test/conformance/hostile"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestLockIsHeld holds a lock without a command, until it is interrupted and until it is lost.
func TestLockIsHeld(t *testing.T) {
	onShops(t, func(s shop) {
		hold := func(name string) (p *process, token int) {
			out, err := os.Create(s.file(name))
			if err != nil {
				s.Fatal(err)
			}
			s.Cleanup(func() { _ = out.Close() })
			p = s.startAs(&syscall.SysProcAttr{Setsid: true}, out, "lock", "k")
			if token, err = strconv.Atoi(s.line(name, 1)); err != nil {
				s.Fatal(err)
			}
			return p, token
		}
		p, first := hold("first")
		s.ends(exitHeld, "", "lock", "k", "--wait", "0", "--", "true")
		p.signal(syscall.SIGINT)
		p.endsWith(exitOK)
		p, second := hold("second")
		if second <= first {
			s.Errorf("token %d after %d", second, first)
		}
		if code, _, said := s.run("locks", "release", "--yes", "--key", "k", "--by", "ada", "--reason", "a test"); code != exitOK {
			s.Error(said)
		}
		p.endsWith(exitLost)
	})
}

// TestRunStatuses checks that the command's status is passed on, and that no other status can be
// taken for it.
func TestRunStatuses(t *testing.T) {
	t.Parallel()
	s := newShop(t, dbtest.SQLite)
	plain := s.file("plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	held := s.start(append([]string{"lock", "held"}, s.sleeps("held")...)...)
	fair := s.start(append([]string{"lock", "held", "--fair"}, s.sleeps("fair")...)...)
	s.line("held", 1)
	s.line("fair", 1)
	for _, name := range []string{"lock", "elect", "once"} {
		for want, args := range map[int][]string{
			0:             {"k0", "--", "true"},
			1:             {"k1", "--", "false"},
			2:             {"k2", "--", "sh", "-c", "exit 2"},
			255:           {"k255", "--", "sh", "-c", "exit 255"},
			exitNotFound:  {"k", "--", "no-such-command"},
			exitCannotRun: {"k", "--", plain},
			exitNotRun:    {"k", "true"},
		} {
			s.ends(want, "", append([]string{name}, args...)...)
		}
		for _, args := range [][]string{
			{},
			{"k", "--"},
			{"--", "true"},
			{"k", "l", "--", "true"},
			{"k", "--nonsense", "--", "true"},
			{"k", "--ttl", "1ns", "--", "true"},
			{"k", "--grace", "29s", "--", "true"},
			{"k", "--grace", "-1s", "--", "true"},
			{"k", "--prefix", "other_", "--", "true"},
			{"k\x00", "--", "true"},
			{strings.Repeat("k", 2000), "--", "true"},
			{"", "--", "true"},
		} {
			s.ends(exitNotRun, "", append([]string{name}, args...)...)
		}
		code, _, said := command(t, name, "-dsn", "postgres://u:S3cr3t@127.0.0.1:1/db", "k", "--", "true")
		if code != exitNotRun || strings.Contains(said, "S3cr3t") {
			t.Errorf("%s without a server: status %d, %s", name, code, said)
		}
	}
	for _, args := range [][]string{{"elect", "k"}, {"once", "k"}, {"once", "k", "--retry", "x", "--", "true"}, {"once", "k", "--keep-output", "-1", "--", "true"}, {"lock", "k", "--wait", "-1s", "--", "true"}} {
		s.ends(exitNotRun, "", args...)
	}
	s.ends(exitSignal+9, "", "lock", "k", "--", "sh", "-c", "kill -9 $$")
	s.ends(exitSignal+9, "", "elect", "k", "--", "sh", "-c", "kill -9 $$")
	s.ends(exitUnknown, "", "once", "k9", "--", "sh", "-c", "kill -9 $$")
	s.ends(exitHeld, "", "lock", "held", "--wait", "0", "--", "true")
	s.ends(exitHeld, "", "lock", "held", "--wait", "20ms", "--", "true")
	s.ends(exitHeld, "", "lock", "held", "--fair", "--wait", "0", "--", "true")
	s.ends(exitHeld, "", "lock", "held", "--fair", "--wait", "20ms", "--", "true")
	s.ends(exitOK, "", "lock", "held", "--owner", "another", "--wait", "0", "--", "true")
	for _, p := range []*process{held, fair} {
		p.signal(syscall.SIGTERM)
		p.endsWith(exitSignal + int(syscall.SIGTERM))
	}
}

// TestRunEnvironment checks what a command finds in its environment: what holdfast had, the key and
// a token that rises.
func TestRunEnvironment(t *testing.T) {
	onShops(t, func(s shop) {
		last := map[string]int{}
		for range 2 {
			for _, args := range [][]string{{"lock"}, {"lock", "--fair"}, {"elect"}} {
				all := append(slices.Clone(args), "order 7", "--owner", "shop-7", "--", "sh", "-c", `echo "$HOLDFAST_KEY:$HOLDFAST_OWNER:$PATH"; echo "$HOLDFAST_TOKEN:0" >> "$0"`, s.file("tokens"))
				s.ends(0, "order 7:shop-7:"+os.Getenv("PATH")+"\n", all...)
				lines := s.lines("tokens")
				token, _ := s.held(lines[len(lines)-1])
				kind := strings.Join(args, " ")
				if kind == "elect" {
					kind = "lock" // a leadership is a lease
				}
				if token <= last[kind] {
					s.Errorf("%v: token %d after %d", args, token, last[kind])
				}
				last[kind] = token
			}
		}
	})
}

// TestLockExcludes checks that no two commands of a key run at a time.
func TestLockExcludes(t *testing.T) {
	onShops(t, func(s shop) {
		for _, args := range [][]string{{"lock"}, {"lock", "--fair"}, {"elect"}} {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					s.ends(0, "", append(args, "k", "--", "sh", "-c", `mkdir "$0" && rmdir "$0"`, s.file("inside"))...)
				})
			}
			all.Wait()
		}
	})
}

// TestRunSignals checks that a command gets the signals of holdfast, each once, and can end as it
// likes. The children of the command get those that ask it to end, too.
func TestRunSignals(t *testing.T) {
	t.Parallel()
	s := newShop(t, dbtest.SQLite)
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	} {
		for _, command := range []string{"lock", "elect", "once"} {
			t.Run(command+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := shop{t, s.url, t.TempDir()}
				p := s.start(command, name, "--", "sh", "-c",
					`trap 'echo got >> "$0"; exit 42' `+name+`; echo ready >> "$0"; while :; do sleep 0.05; done`, s.file("f"))
				s.line("f", 1)
				p.signal(sig)
				p.endsWith(42)
				if got := s.lines("f"); len(got) != 2 {
					t.Errorf("got %q", got)
				}
			})
		}
	}
	t.Run("all of the group", func(t *testing.T) {
		t.Parallel()
		s := shop{t, s.url, t.TempDir()}
		p := s.start("lock", "group", "--", "sh", "-c", `sleep 1000 & echo "0:$!" >> "$0"; wait`, s.file("f"))
		_, pid := s.held(s.line("f", 1))
		p.signal(syscall.SIGTERM)
		p.endsWith(exitSignal + int(syscall.SIGTERM))
		s.gone(pid)
	})
}

// TestRunInterruptedWait checks that a signal ends a wait, and that the status says which.
func TestRunInterruptedWait(t *testing.T) {
	t.Parallel()
	s := newShop(t, dbtest.SQLite)
	holder := s.start(append([]string{"lock", "k"}, s.sleeps("holder")...)...)
	first := s.start(append([]string{"once", "k"}, s.sleeps("first")...)...)
	s.line("holder", 1)
	s.line("first", 1)
	for _, args := range [][]string{{"lock", "k"}, {"elect", "k"}, {"once", "k"}} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			all := append(slices.Clone(args), "--", "touch", s.file("ran"))
			if args[0] == "once" {
				all = append(slices.Clone(args), s.sleeps("first")...)
			}
			p := s.start(all...)
			p.opened()
			p.signal(sig)
			p.endsWith(exitSignal + int(sig))
		}
	}
	if _, err := os.Stat(s.file("ran")); err == nil || len(s.lines("first")) != 1 {
		t.Error("a command ran")
	}
	holder.signal(syscall.SIGTERM)
	holder.status()
	first.signal(syscall.SIGTERM)
	first.endsWith(exitUnknown)
}

// TestLockOfKilledHoldfast checks that a command does not outlive a holdfast that is killed, and
// that the lock is had again, with a higher token.
func TestLockOfKilledHoldfast(t *testing.T) {
	onShops(t, func(s shop) {
		for _, command := range []string{"lock", "elect"} {
			p := s.start(append([]string{command, command}, s.sleeps(command)...)...)
			token, pid := s.held(s.line(command, 1))
			p.signal(syscall.SIGKILL)
			p.endsWith(-int(syscall.SIGKILL))
			s.gone(pid)
			s.expire()
			s.ends(0, "", append([]string{command, command}, s.says(command)...)...)
			if next, _ := s.held(s.line(command, 2)); next <= token {
				s.Errorf("%s: token %d after %d", command, next, token)
			}
		}
	})
}

// TestLockOfStoppedHoldfast checks that a holdfast that was stopped past its lease ends its command
// when it continues, and says so. Its token guards no transaction since another had the lock.
func TestLockOfStoppedHoldfast(t *testing.T) {
	onShops(t, func(s shop) {
		guard := s.guard()
		p, key, token, pid := s.frozen("lock")
		if err := guard(key, token); err != nil {
			s.Errorf("guarded by the token: %v", err)
		}
		s.ends(0, "", append([]string{"lock", key}, s.says(key)...)...)
		if next, _ := s.held(s.line(key, 2)); next <= token {
			s.Errorf("token %d after %d", next, token)
		}
		if err := guard(key, token); err == nil {
			s.Error("guarded by the token of a lock that is lost")
		}
		if !alive(pid) {
			s.Error("the command did not run on: what is to be shown was not")
		}
		p.signal(syscall.SIGCONT)
		p.endsWith(exitLost)
		if alive(pid) {
			s.Error("the command runs on")
		}
	})
}

// TestInjectionRun checks that keys, owners and names that contain SQL reach the command as they
// are, and no statement.
func TestInjectionRun(t *testing.T) {
	onShops(t, func(s shop) {
		for i, evil := range hostile.Strings() {
			if strings.ContainsRune(evil, 0) || strings.HasPrefix(evil, "-") {
				continue
			}
			owner := "--owner=o" + strconv.Itoa(i)
			if utf8.ValidString(evil) && len(evil) < 100 {
				owner = "--owner=" + evil
			}
			args := []string{"lock"}
			if i%2 == 0 {
				args = []string{"once", "--name=n" + owner}
			}
			args = append(args, owner, evil, "--", "sh", "-c", `printf %s "$HOLDFAST_KEY"`)
			if code, out, said := s.run(args...); code != 0 && code != exitNotRun || code == 0 && out != evil || syntax.MatchString(said) {
				s.Errorf("%q: status %d, %q, %s", args, code, out, said)
			}
		}
	})
}

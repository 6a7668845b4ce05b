//go:build unix

package main

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// counted is a command that writes a line into a file for each time that it runs, and then does as
// the script says.
func (s shop) counted(name, script string) []string {
	return []string{"--", "sh", "-c", `echo ran >> "$0"; ` + script, s.file(name)}
}

func (s shop) ran(name string, times int) {
	s.Helper()
	if got := len(s.lines(name)); got != times {
		s.Errorf("%s ran %d times, want %d", name, got, times)
	}
}

// TestOnce checks that a command runs once, and that each later call gets its status, and its
// output if that is kept.
func TestOnce(t *testing.T) {
	onShops(t, func(s shop) {
		for range 2 {
			s.ends(3, "", append([]string{"once", "a"}, s.counted("a", "exit 3")...)...)
			s.ends(0, "hello\n", append([]string{"once", "b", "--keep-output", "100"}, s.counted("b", "echo hello")...)...)
		}
		code, out, said := s.run(append([]string{"once", "c", "--keep-output", "3"}, s.counted("c", "echo hello")...)...)
		if code != 0 || out != "hello\n" || said != "" {
			s.Errorf("status %d, %q, %q", code, out, said)
		}
		code, out, said = s.run(append([]string{"once", "c", "--keep-output", "3"}, s.counted("c", "echo hello")...)...)
		if code != 0 || out != "hel" || !strings.Contains(said, "more than was kept") {
			s.Errorf("status %d, %q, %q", code, out, said)
		}
		s.ends(exitOther, "", "once", "a", "--", "true")
		s.ends(0, "", "once", "a", "--name", "other", "--", "true")
		s.ends(0, "", "once", "a", "--namespace", "other", "--", "true")
		s.ends(0, "", "once", "a", "--owner", "other", "--", "true")
		for _, name := range []string{"a", "b", "c"} {
			s.ran(name, 1)
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { s.ends(5, "", append([]string{"once", "d"}, s.counted("d", "exit 5")...)...) })
		}
		all.Wait()
		s.ran("d", 1)
	})
}

// TestOnceAgain checks when a command runs more than once: when its key has expired, and as
// --retry says. Each attempt has the same key for the outside world, and a higher token.
func TestOnceAgain(t *testing.T) {
	onShops(t, func(s shop) {
		short := append([]string{"once", "short", "--key-ttl", "50ms"}, s.counted("short", "exit 0")...)
		s.ends(0, "", short...)
		time.Sleep(100 * time.Millisecond) // twice the life of the key
		s.ends(0, "", short...)
		s.ran("short", 2)

		failed := append([]string{"once", "failed", "--retry", "failed"}, s.counted("failed", `[ $(wc -l < "$0") -gt 2 ]`)...)
		for _, want := range []int{1, 1, 0, 0} {
			s.ends(want, "", failed...)
		}
		s.ran("failed", 3)

		unknown := []string{
			"once", "unknown", "--retry", "unknown,failed", "--", "sh", "-c",
			`echo "$HOLDFAST_TOKEN:0" >> "$0"; echo "$HOLDFAST_IDEMPOTENCY_KEY" >> "$1"; [ $(wc -l < "$0") -gt 1 ] || kill -9 $$`, s.file("unknown"), s.file("keys"),
		}
		s.ends(exitUnknown, "", unknown...)
		s.ends(0, "", unknown...)
		s.ends(0, "", unknown...)
		first, _ := s.held(s.line("unknown", 1))
		second, _ := s.held(s.line("unknown", 2))
		if keys := s.lines("keys"); first >= second || len(keys) != 2 || keys[0] != keys[1] {
			s.Errorf("tokens %d and %d, keys %q", first, second, keys)
		}
	})
}

// TestOnceUnknown checks that a command whose end is not known is not run again until a person
// says what happened.
func TestOnceUnknown(t *testing.T) {
	onShops(t, func(s shop) {
		for as, then := range map[string]struct{ status, times int }{
			"step-done --result {\"status\":4}":     {4, 1},
			"step-not-done":                         {0, 2},
			"rejected --code gone --message no-one": {exitNotRun, 1},
		} {
			key := strings.Fields(as)[0]
			args := append([]string{"once", key}, s.counted(key, `[ $(wc -l < "$0") -gt 1 ] || kill -9 $$`)...)
			for range 2 {
				s.ends(exitUnknown, "", args...)
			}
			if code, out, _ := s.run("ops", "list"); code != 0 || !strings.Contains(out, key) {
				s.Errorf("listed: status %d, %s", code, out)
			}
			if code, _, said := s.run(append([]string{"ops", "resolve", "--yes", "--name", "once", "--key", key, "--by", "ada", "--reason", "asked", "--as"}, strings.Fields(as)...)...); code != 0 {
				s.Errorf("%s: %s", as, said)
			}
			for range 2 {
				s.ends(then.status, "", args...)
			}
			s.ran(key, then.times)
		}
	})
}

// TestOnceOfKilledHoldfast checks that a command whose holdfast is killed is gone too, and what
// later calls do.
func TestOnceOfKilledHoldfast(t *testing.T) {
	onShops(t, func(s shop) {
		for name, want := range map[string]struct {
			flags         []string
			status, times int
		}{
			"parked": {nil, exitUnknown, 1},
			"again":  {[]string{"--retry", "unknown"}, 0, 2},
		} {
			args := slices.Concat([]string{"once", name}, want.flags, s.first(name))
			p := s.start(args...)
			_, pid := s.held(s.line(name, 1))
			p.signal(syscall.SIGKILL)
			p.endsWith(-int(syscall.SIGKILL))
			s.gone(pid)
			s.expire()
			for range 2 {
				s.ends(want.status, "", args...)
			}
			s.ran(name, want.times)
		}
	})
}

// TestOnceOfStoppedHoldfast checks that a holdfast that was stopped past its lease ends its command
// when it continues, and that what it brings back is not kept.
func TestOnceOfStoppedHoldfast(t *testing.T) {
	onShops(t, func(s shop) {
		for _, want := range []struct {
			flags               []string
			other, first, times int
		}{
			{nil, exitUnknown, exitUnknown, 1},
			{[]string{"--retry", "unknown", "--name", "again"}, 0, exitLost, 2},
		} {
			args := append([]string{"once"}, want.flags...)
			p, key, _, pid := s.frozen(args...)
			again := slices.Concat(args, []string{key}, s.first(key))
			s.ends(want.other, "", again...)
			p.signal(syscall.SIGCONT)
			p.endsWith(want.first)
			if alive(pid) {
				s.Errorf("%v: the command runs on", want.flags)
			}
			s.ends(want.other, "", again...)
			s.ran(key, want.times)
		}
	})
}

// TestOnceHeld checks that a call that may not wait says that another runs the command.
func TestOnceHeld(t *testing.T) {
	onShops(t, func(s shop) {
		args := append([]string{"once", "k"}, s.sleeps("f")...)
		p := s.start(args...)
		s.line("f", 1)
		for _, wait := range []string{"0", "20ms"} {
			s.ends(exitHeld, "", append([]string{"once", "k", "--wait", wait}, s.sleeps("f")...)...)
		}
		p.signal(syscall.SIGKILL)
		p.status()
		s.ran("f", 1)
	})
}

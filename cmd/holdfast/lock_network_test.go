//go:build unix

package main

import (
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

var serverAddress = regexp.MustCompile(`@(?:tcp\()?([^/?()]+)`)

// behind returns the same shop behind a proxy, nil for an engine without a network.
func (s shop) behind() (*faultproxy.Proxy, shop) {
	s.Helper()
	at := serverAddress.FindStringSubmatchIndex(s.url)
	if at == nil {
		return nil, s
	}
	proxy, err := faultproxy.New(s.url[at[2]:at[3]])
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(proxy.Close)
	far := s
	far.url = s.url[:at[2]] + proxy.Addr() + s.url[at[3]:]
	return proxy, far
}

func onNetworks(t *testing.T, f func(s, far shop, proxy *faultproxy.Proxy)) {
	onShops(t, func(s shop) {
		if proxy, far := s.behind(); proxy != nil {
			f(s, far, proxy)
		}
	})
}

// stubborn is a command that ends by nothing but KILL.
func (s shop) stubborn(name string) []string {
	return []string{"--", "sh", "-c", `trap : TERM; echo "$HOLDFAST_TOKEN:$$" >> "$0"; while :; do sleep 0.05; done`, s.file(name)}
}

// TestLockCutOff checks that a command whose holdfast loses the network is killed before another
// has the lock, even if it ignores TERM.
func TestLockCutOff(t *testing.T) {
	onNetworks(t, func(s, far shop, proxy *faultproxy.Proxy) {
		p := far.start(append([]string{"lock", "k", "--ttl", "4s", "--grace", "1600ms"}, s.stubborn("f")...)...)
		_, pid := s.held(s.line("f", 1))
		proxy.BlackHole(true)
		s.ends(0, "", "lock", "k", "--", "sh", "-c", `! kill -0 "$0"`, strconv.Itoa(pid))
		p.endsWith(exitLost)
	})
}

// TestElectAgain checks that a leader without a network ends its command before another leads,
// and leads again when it can: with a higher token. So it does after a forced release.
func TestElectAgain(t *testing.T) {
	onNetworks(t, func(s, far shop, proxy *faultproxy.Proxy) {
		p := far.start(append([]string{"elect", "k", "--ttl", "3s", "--grace", "200ms", "--value", "far"}, s.sleeps("far")...)...)
		_, pid := s.held(s.line("far", 1))
		s.ends(0, "released\n", "locks", "release", "--yes", "--key", "k", "--by", "ada", "--reason", "test")
		s.gone(pid)
		s.line("far", 2)
		proxy.BlackHole(true)
		s.ends(7, "", "elect", "k", "--", "sh", "-c", `kill -0 "$(sed -n 's/.*://;$p' "$0")" && exit 9; echo "$HOLDFAST_TOKEN:0" >> "$1"; exit 7`, s.file("far"), s.file("near"))
		lines := append(s.lines("far"), s.line("near", 1))
		proxy.BlackHole(false)
		lines = append(lines, s.line("far", len(lines)))
		last := 0
		for _, line := range lines {
			var token int
			if token, pid = s.held(line); token <= last {
				s.Errorf("tokens in %q", lines)
			}
			last = token
		}
		p.signal(syscall.SIGTERM)
		p.endsWith(exitSignal + int(syscall.SIGTERM))
		s.gone(pid)
	})
}

// TestElectTakesOver checks that a second process leads when the first is stopped, and that the first
// ends its command when it continues, and leads again when the second is killed.
func TestElectTakesOver(t *testing.T) {
	onShops(t, func(s shop) {
		first, key, _, firstPID := s.frozen("elect")
		second := s.start(append([]string{"elect", key}, s.sleeps(key)...)...)
		_, secondPID := s.held(s.line(key, 2))
		first.signal(syscall.SIGCONT)
		s.gone(firstPID)
		second.signal(syscall.SIGKILL)
		s.gone(secondPID)
		s.expire()
		s.line(key, 3)
		first.endsWith(exitOK) // its command does not last, if it is not the first
	})
}

// TestOnceCutOff checks that the outcome of a command whose holdfast lost the network is unknown,
// to every later call, and that the command was ended.
func TestOnceCutOff(t *testing.T) {
	onNetworks(t, func(s, far shop, proxy *faultproxy.Proxy) {
		args := append([]string{"once", "k", "--ttl", "4s", "--grace", "50ms"}, s.stubborn("f")...)
		p := far.start(args...)
		_, pid := s.held(s.line("f", 1))
		proxy.BlackHole(true)
		s.ends(exitUnknown, "", args...)
		s.gone(pid)
		p.endsWith(exitUnknown)
		if got := s.lines("f"); len(got) != 1 {
			s.Errorf("it ran %d times", len(got))
		}
	})
}

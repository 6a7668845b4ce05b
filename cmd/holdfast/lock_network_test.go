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
		p := far.start(append([]string{"lock", "k", "--ttl", "2s", "--grace", "800ms"}, s.stubborn("f")...)...)
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
		p := far.start(append([]string{"elect", "k", "--ttl", "2s", "--grace", "200ms", "--value", "far"}, s.sleeps("far")...)...)
		first, pid := s.held(s.line("far", 1))
		s.ends(0, "released\n", "locks", "release", "--key", "k", "--by", "ada", "--reason", "test")
		s.gone(pid)
		second, pid := s.held(s.line("far", 2))
		proxy.BlackHole(true)
		s.ends(7, "", "elect", "k", "--", "sh", "-c", `kill -0 "$0" && exit 9; echo "$HOLDFAST_TOKEN:0" >> "$1"; exit 7`, strconv.Itoa(pid), s.file("near"))
		other, _ := s.held(s.line("near", 1))
		proxy.BlackHole(false)
		third, pid := s.held(s.line("far", 3))
		if first >= second || second >= other || other >= third {
			s.Errorf("tokens %d, %d, %d, %d", first, second, other, third)
		}
		p.signal(syscall.SIGTERM)
		p.endsWith(exitSignal + int(syscall.SIGTERM))
		s.gone(pid)
	})
}

// TestElectTakesOver checks that a second process leads when the first is killed, and that a leader
// that was stopped meanwhile ends its command and campaigns again.
func TestElectTakesOver(t *testing.T) {
	onShops(t, func(s shop) {
		args := []string{"elect", "k", "--ttl", "500ms"}
		first := s.start(append(args, s.sleeps("f")...)...)
		_, firstPID := s.held(s.line("f", 1))
		second := s.start(append(args, s.sleeps("f")...)...)
		first.freeze()
		_, secondPID := s.held(s.line("f", 2))
		first.signal(syscall.SIGCONT)
		s.gone(firstPID)
		second.signal(syscall.SIGKILL)
		s.gone(secondPID)
		_, pid := s.held(s.line("f", 3))
		first.signal(syscall.SIGINT)
		first.endsWith(exitSignal + int(syscall.SIGINT))
		s.gone(pid)
	})
}

// TestOnceCutOff checks that the outcome of a command whose holdfast lost the network is unknown,
// to every later call, and that the command was ended.
func TestOnceCutOff(t *testing.T) {
	onNetworks(t, func(s, far shop, proxy *faultproxy.Proxy) {
		args := append([]string{"once", "k", "--ttl", "2s", "--grace", "50ms"}, s.stubborn("f")...)
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

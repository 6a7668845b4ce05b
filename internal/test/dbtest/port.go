package dbtest

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// FreePort returns a port on 127.0.0.1 that was free a moment ago.
func FreePort(tb testing.TB) string {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.WithoutCancel(tb.Context()), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// Serve runs a program until the test ends, and returns when it accepts connections at the port on 127.0.0.1.
func Serve(tb testing.TB, port, program string, args ...string) {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program, args...)
	said := new(strings.Builder)
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	tb.Cleanup(end)
	for last := time.Now().Add(Hang); ; time.Sleep(10 * time.Millisecond) {
		c, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(last) {
			end() // what it said is complete then
			tb.Fatalf("%s does not answer: %v\n%s", program, err, said)
		}
	}
}

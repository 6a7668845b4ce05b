package dbtest

import (
	"context"
	"net"
	"testing"
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

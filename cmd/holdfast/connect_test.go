package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"
)

// TestNoAnswer checks that a server which accepts a connection and says nothing ends in an error that
// names its address.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the kernel accepts for it
	address := l.Addr().String()
	for _, url := range []string{"postgres://me:secret@" + address + "/db?sslmode=disable", "mysql://me:secret@tcp(" + address + ")/db"} {
		pool, err := openWithin(url, nil, 50*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		err = pool.PingContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no answer from "+address+" within 50ms") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url[:5], err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := pool.PingContext(ended); err == nil || strings.Contains(err.Error(), "no answer") {
			t.Errorf("%s, interrupted: %v", url[:5], err)
		}
		_ = pool.Close()
	}
}

package faultproxy_test

import (
	"bytes"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// server answers each request and records it.
type server struct {
	net.Listener
	mu   sync.Mutex
	got  bytes.Buffer
	live int
}

func (s *server) received() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func (s *server) sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

func (s *server) serve(c net.Conn) {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.live += n
	}
	count(1)
	defer count(-1)
	defer c.Close()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.got.Write(buf[:n])
		s.mu.Unlock()
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func start(t *testing.T) (*faultproxy.Proxy, *server) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { s.serve(c) })
		}
	})
	p, err := faultproxy.New(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		listener.Close()
		running.Wait()
	})
	return p, s
}

func dial(t *testing.T, p *faultproxy.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request and returns the data that arrives within the time.
func ask(t *testing.T, c net.Conn, request string, within time.Duration) (string, error) {
	t.Helper()
	if _, err := c.Write([]byte(request)); err != nil {
		return "", err
	}
	c.SetReadDeadline(time.Now().Add(within))
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

func want(t *testing.T, c net.Conn, request string) {
	t.Helper()
	if got, err := ask(t, c, request, 5*time.Second); got != request || err != nil {
		t.Fatalf("%q: got %q, %v", request, got, err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 5 s: " + what)
		}
	}
}

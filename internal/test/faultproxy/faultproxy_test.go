package faultproxy_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
)

func endings() map[string]struct {
	ending faultproxy.Ending
	err    error
} {
	return map[string]struct {
		ending faultproxy.Ending
		err    error
	}{
		"close":   {faultproxy.Close, io.EOF},
		"reset":   {faultproxy.Reset, syscall.ECONNRESET},
		"silence": {faultproxy.Silence, os.ErrDeadlineExceeded},
	}
}

func TestLoseReply(t *testing.T) {
	for name, e := range endings() {
		t.Run(name, func(t *testing.T) {
			p, s := start(t)
			c := dial(t, p)
			then := make(chan string, 1)
			f := p.LoseReply(faultproxy.Contains("COMMIT"), e.ending, func() { then <- s.received() })
			want(t, c, "one")
			if got, err := ask(t, c, "do commit", 100*time.Millisecond); got != "" || !errors.Is(err, e.err) {
				t.Errorf("got %q, %v, want %v", got, err, e.err)
			}
			if got := <-then; got != "onedo commit" {
				t.Errorf("the fault struck when the server had received %q", got)
			}
			if !f.Fired() || p.Fired() != 1 {
				t.Errorf("fired: %v, %d", f.Fired(), p.Fired())
			}
			want(t, dial(t, p), "commit again") // a fault strikes once, and on one connection
			if e.ending == faultproxy.Silence {
				if got, err := ask(t, c, "more", 50*time.Millisecond); got != "" || s.received() != "onedo commitcommit again" {
					t.Errorf("the silent connection passed on %q, %v; the server received %q", got, err, s.received())
				}
			}
		})
	}
}

func TestLoseRequest(t *testing.T) {
	for name, e := range endings() {
		t.Run(name, func(t *testing.T) {
			p, s := start(t)
			c, other := dial(t, p), dial(t, p)
			want(t, other, "other,")
			p.LoseRequest(faultproxy.Contains("commit"), e.ending)
			want(t, c, "one,")
			if got, err := ask(t, c, "commit", 100*time.Millisecond); got != "" || !errors.Is(err, e.err) {
				t.Errorf("got %q, %v, want %v", got, err, e.err)
			}
			want(t, other, "two")
			if got := s.received(); got != "other,one,two" {
				t.Errorf("the server received %q", got)
			}
			left := 1
			if e.ending == faultproxy.Silence {
				left = 2 // the server keeps the session until the cut
			}
			eventually(t, "the server's sessions", func() bool { return s.sessions() == left })
			p.CutAll()
			eventually(t, "no session", func() bool { return s.sessions() == 0 })
		})
	}
}

func TestHold(t *testing.T) {
	for name, e := range endings() {
		t.Run(name, func(t *testing.T) {
			p, s := start(t)
			c := dial(t, p)
			f := p.Hold(faultproxy.Contains("commit"), e.ending)
			if err := f.Deliver(); err == nil {
				t.Error("delivered what was not sent")
			}
			if _, err := ask(t, c, "commit", 100*time.Millisecond); !errors.Is(err, e.err) {
				t.Errorf("got %v, want %v", err, e.err)
			}
			eventually(t, "the session stays", func() bool { return s.sessions() == 1 })
			if s.received() != "" {
				t.Errorf("the server received %q", s.received())
			}
			if err := f.Deliver(); err != nil || s.received() != "commit" {
				t.Errorf("%v; the server received %q", err, s.received())
			}
			eventually(t, "no session", func() bool { return s.sessions() == 0 })
			if err := f.Deliver(); err == nil {
				t.Error("delivered twice")
			}
		})
	}
}

// TestHoldDropsCancels checks that a request to cancel reaches the server unless a request was
// held before: it could cancel that one.
func TestHoldDropsCancels(t *testing.T) {
	p, s := start(t)
	cancel := string(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 16}, 80877102)) + "pid and secret"
	want(t, dial(t, p), cancel)
	f := p.Hold(faultproxy.Contains("commit"), faultproxy.Close)
	if got, err := ask(t, dial(t, p), "commit", time.Second); got != "" || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := ask(t, dial(t, p), cancel, time.Second); got != "" || err == nil {
		t.Errorf("the cancel was answered: %q, %v", got, err)
	}
	if err := f.Deliver(); err != nil {
		t.Error(err)
	}
	if got := s.received(); got != cancel+"commit" {
		t.Errorf("the server received %q", got)
	}
}

func TestHeldSessionCanBeCut(t *testing.T) {
	p, s := start(t)
	f := p.Hold(faultproxy.Contains("commit"), faultproxy.Close)
	_, _ = ask(t, dial(t, p), "commit", time.Second)
	<-f.Struck()
	p.CutAll()
	eventually(t, "no session", func() bool { return s.sessions() == 0 })
	if err := f.Deliver(); err == nil || s.received() != "" {
		t.Errorf("delivered to nobody: %v, %q", err, s.received())
	}
}

func TestBlackHole(t *testing.T) {
	p, s := start(t)
	before := dial(t, p)
	want(t, before, "one,")
	p.BlackHole(true)
	for name, c := range map[string]net.Conn{"before": before, "after": dial(t, p)} {
		if got, err := ask(t, c, "two,", 50*time.Millisecond); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	if got := s.received(); got != "one," {
		t.Errorf("the server received %q", got)
	}
	before.Close() // the proxy holds its end back, like its last request
	time.Sleep(20 * time.Millisecond)
	if s.sessions() != 1 {
		t.Error("the server learnt of the end")
	}
	p.BlackHole(false)
	eventually(t, "both requests", func() bool { return s.received() == "one,two,two," })
	eventually(t, "one session", func() bool { return s.sessions() == 1 })
	want(t, dial(t, p), "three")
}

func TestCutAllAndRefuse(t *testing.T) {
	p, s := start(t)
	a, b := dial(t, p), dial(t, p)
	want(t, a, "a")
	want(t, b, "b")
	p.Down()
	if c, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come first
		_, err = ask(t, c, "x", 5*time.Second)
		if c.Close(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a new connection: %v", err)
		}
	}
	for _, c := range []net.Conn{a, b} {
		if got, err := ask(t, c, "x", 5*time.Second); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %q, %v", got, err)
		}
	}
	eventually(t, "no session", func() bool { return s.sessions() == 0 })
	p.Refuse(false)
	want(t, dial(t, p), "c")
	if got := p.Accepted(); got != 3 {
		t.Errorf("let in %d, want 3", got)
	}
}

// A pool's Close must not wait for a black-holed connection.
func TestAim(t *testing.T) {
	p, first := start(t)
	_, second := start(t)
	before := dial(t, p)
	want(t, before, "a")
	p.Aim(second.Addr().String())
	want(t, dial(t, p), "b")
	want(t, before, "c")
	if a, b := first.received(), second.received(); a != "ac" || b != "b" {
		t.Errorf("got %q and %q", a, b)
	}
}

func TestCloseInBlackHole(t *testing.T) {
	p, _ := start(t)
	want(t, dial(t, p), "a")
	p.BlackHole(true)
	c := dial(t, p)
	if _, err := c.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := ask(t, c, "x", 5*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestNthAndDisarm(t *testing.T) {
	p, s := start(t)
	c := dial(t, p)
	p.LoseRequest(faultproxy.Nth(3), faultproxy.Close)
	want(t, c, "1")
	want(t, c, "2")
	if got, err := ask(t, c, "3", time.Second); got != "" || !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v", got, err)
	}
	f := p.LoseRequest(faultproxy.Nth(1), faultproxy.Close)
	f.Disarm()
	want(t, dial(t, p), "4")
	if f.Fired() || s.received() != "124" {
		t.Errorf("fired %v; the server received %q", f.Fired(), s.received())
	}
}

// wire returns a message of PostgreSQL's extended protocol.
func wire(kind byte, first, second, rest string) string {
	body := first + "\x00" + second + "\x00" + rest
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))) + body
}

func TestCommit(t *testing.T) {
	digest := sha256.Sum256([]byte("commit"))
	kept := "stmtcache_" + hex.EncodeToString(digest[:24])
	for request, matches := range map[string]bool{
		"Q\x00\x00\x00\x0bcommit\x00": true, // PostgreSQL's simple query
		"\x07\x00\x00\x00\x03COMMIT":  true, // MySQL's query
		"commit":                      true,
		wire('P', "", "update t", "\x00\x00") + wire('B', "", "", "\x00\x00"): false,
		// A pipeline with a new statement for the COMMIT; one with a statement that pgx has
		// kept; and the round trip that prepares that statement.
		wire('P', "", "update t", "\x00\x00") + wire('B', "", "", "\x00\x00") + wire('P', "", "commit", "\x00\x00") + wire('B', "", "", "\x00\x00"): true,
		wire('B', "", "stmtcache_9f4b0bd0ab65ad0c9cd2fe0e8c0a3a2d4b6f5f36cf4f0bff", "\x00\x00"):                                                     false,
		wire('B', "", kept, "\x00\x00"):                             true,
		wire('P', kept, "commit", "\x00\x00") + "S\x00\x00\x00\x04": false,
		"\x03SET SESSION autocommit = 0":                            false,
		"\x03SELECT @@autocommit":                                   false,
		"Q\x00\x00\x00\x0bcommit prepared\x00":                      false,
		"rollback":                                                  false,
		"":                                                          false,
	} {
		if got := faultproxy.Commit([]byte(request)); got != matches {
			t.Errorf("%q: %v", request, got)
		}
	}
}

func TestSlow(t *testing.T) {
	p, _ := start(t)
	c := dial(t, p)
	want(t, c, "one")
	const by = 60 * time.Millisecond
	p.Slow(by)
	begin := time.Now()
	want(t, c, "two")
	if took := time.Since(begin); took < 2*by {
		t.Errorf("a request and its answer took %v, want %v at least", took, 2*by)
	}
	p.Slow(0)
	want(t, c, "three")
	p.Slow(time.Hour)
	if got, err := ask(t, c, "four", by); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestEdit checks that the server gets the edited request, and that the client does not notice.
func TestEdit(t *testing.T) {
	t.Parallel()
	p, s := start(t)
	c := dial(t, p)
	p.Edit(func(request []byte) { copy(request, bytes.ToUpper(request)) })
	if got, err := ask(t, c, "quiet", 5*time.Second); got != "QUIET" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	p.Edit(nil)
	want(t, c, "again")
	if got := s.received(); got != "QUIETagain" {
		t.Errorf("the server got %q", got)
	}
}

// TestNewOn uses a target that is a socket file.
func TestNewOn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := listener.Accept()
		if err != nil {
			return
		}
		(&server{}).serve(c)
	}()
	p, err := faultproxy.NewOn("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	want(t, dial(t, p), "through")
	p.Close()
	<-served
}

package idemclient_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// deafBank is a server that ignores keys. It reads each POST whole, and then its connection dies, if
// the connection was kept from an earlier request.
type deafBank struct {
	server *httptest.Server
	posts  atomic.Int32
	key    atomic.Value
}

func startDeafBank(t *testing.T, protocol2 bool) *deafBank {
	p := &deafBank{}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		p.posts.Add(1)
		p.key.Store(r.Header.Get(idemclient.HeaderKey) + r.Header.Get("X-Idempotency-Key"))
		if p.posts.Load() == 1 {
			panic(http.ErrAbortHandler) // the connection dies
		}
	}))
	if protocol2 {
		p.server.EnableHTTP2 = true
		p.server.StartTLS()
	} else {
		p.server.Start()
	}
	t.Cleanup(p.server.Close)
	return p
}

// TestSendOnce kills kept connections under requests, and counts what reaches the server. Without
// SendOnce net/http sends a POST with a key twice.
func TestSendOnce(t *testing.T) {
	for name, body := range map[string]io.Reader{"body": strings.NewReader("100"), "no body": http.NoBody, "nil body": nil} {
		for _, header := range []string{idemclient.HeaderKey, "X-Idempotency-Key"} {
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				t.Run(method+" "+header+" "+name, func(t *testing.T) {
					for once, want := range map[bool]int32{false: 2, true: 1} {
						p := startDeafBank(t, false)
						kept := &http.Transport{}
						t.Cleanup(kept.CloseIdleConnections)
						client := http.Client{Transport: kept}
						if once {
							client.Transport = &idemclient.SendOnce{Base: kept}
						}
						if resp, err := client.Get(p.server.URL); err != nil {
							t.Fatal(err)
						} else {
							_ = resp.Body.Close() // the connection is kept
						}
						if s, ok := body.(io.Seeker); ok {
							_, _ = s.Seek(0, io.SeekStart)
						}
						r, err := http.NewRequestWithContext(t.Context(), method, p.server.URL, body)
						if err != nil {
							t.Fatal(err)
						}
						r.Header.Set(header, `"key"`)
						resp, err := client.Do(r)
						if err == nil {
							_ = resp.Body.Close()
						}
						if (err != nil) != once {
							t.Errorf("once is %v: %v", once, err)
						}
						if n := p.posts.Load(); n != want {
							t.Errorf("once is %v: %d requests, want %d", once, n, want)
						}
						if got := p.key.Load(); got != `"key"` || r.Header.Get(header) != `"key"` {
							t.Errorf("once is %v: the server got the key %v, the caller's request has %v", once, got, r.Header)
						}
					}
				})
			}
		}
	}
}

// TestSendOnceAnswers sends requests that arrive, over each protocol.
func TestSendOnceAnswers(t *testing.T) {
	for _, protocol2 := range []bool{false, true} {
		p := startDeafBank(t, protocol2)
		p.posts.Store(1) // its connections live
		client := p.server.Client()
		client.Transport = &idemclient.SendOnce{Base: client.Transport}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.server.URL, strings.NewReader("100"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(idemclient.HeaderKey, `"key"`)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || p.key.Load() != `"key"` || resp.Request.Header.Get(idemclient.HeaderKey) != `"key"` || resp.ProtoMajor == 2 != protocol2 {
			t.Errorf("%v, key %v, of %v", resp.Status, p.key.Load(), resp.Request.Header)
		}
		client.CloseIdleConnections()
	}
}

// resetBank speaks as much HTTP/2 as it takes to reset the stream of each first request, after it has booked it.
func resetBank(t *testing.T) (url string, roots *x509.CertPool, booked *atomic.Int32) {
	t.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	t.Cleanup(certificate.Close)
	roots, booked = x509.NewCertPool(), &atomic.Int32{}
	roots.AddCert(certificate.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// A client may keep a connection open that it was told to close while a stream of it was not yet done.
			stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
			open.Go(func() {
				defer c.Close()
				defer stop()
				speak(c, booked)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); open.Wait() })
	return "https://" + l.Addr().String(), roots, booked
}

// speak answers frames (RFC 9113, 4.1).
func speak(c net.Conn, booked *atomic.Int32) {
	if _, err := io.ReadFull(c, make([]byte, 24)); err != nil { // the client's preface
		return
	}
	const data, headers, reset, settings, endStream, endHeaders, ack = 0, 1, 3, 4, 1, 4, 1
	frame := func(kind, flags byte, stream []byte, payload ...byte) {
		_, _ = c.Write(append(append([]byte{0, 0, byte(len(payload)), kind, flags}, stream...), payload...))
	}
	frame(settings, 0, make([]byte, 4))
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], head[5:9]
		switch {
		case kind == settings && flags&ack == 0:
			frame(settings, ack, make([]byte, 4))
		case kind != data && kind != headers || flags&endStream == 0:
		case booked.Add(1) == 1:
			frame(reset, 0, stream, 0, 0, 0, 1) // PROTOCOL_ERROR
		default:
			frame(headers, endStream|endHeaders, stream, 0x88) // :status 200
		}
	}
}

// TestSendOnceOverHTTP2 has a gateway reset the stream of a request that was booked. Without SendOnce net/http
// sends it again.
func TestSendOnceOverHTTP2(t *testing.T) {
	for once, want := range map[bool]int32{false: 2, true: 1} {
		url, roots, booked := resetBank(t)
		base := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
		client := http.Client{Transport: base}
		if once {
			client.Transport = &idemclient.SendOnce{Base: base}
		}
		resp, err := client.Post(url, "text/plain", strings.NewReader("100"))
		if err == nil {
			_ = resp.Body.Close()
		}
		if n := booked.Load(); n != want || (err != nil) != once {
			t.Errorf("once is %v: %d requests, want %d; %v", once, n, want, err)
		}
		base.CloseIdleConnections()
	}
}

package idemclient

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// SendOnce is an http.RoundTripper that sends a request at most once. The zero value is ready to use:
//
//	client := &http.Client{Transport: &idemclient.SendOnce{}}
//
// net/http takes a POST with the header Idempotency-Key for one that may be repeated: when a kept
// connection dies before the response, it sends the request again, within one call of http.Client.Do. Over
// HTTP/2 it repeats any request whose stream the server has reset with PROTOCOL_ERROR. A provider that honours
// the key does the work once. One that ignores it pays twice, and no record of the caller can tell. So use
// SendOnce in the function of an external call of package staged, unless its provider is known to honour keys.
//
// Over HTTP/2 a request without a body is repeated all the same: give it one, or leave HTTP/2 out of the
// Protocols of Base. A request of which nothing was written to the connection is still sent on another one. Redirects
// are new requests: forbid those of 307 and 308 with http.Client.CheckRedirect. Methods that are safe by
// definition, such as GET, are not changed.
type SendOnce struct {
	// Base sends the requests. Default: http.DefaultTransport. It must not retry.
	Base http.RoundTripper
}

// RoundTrip sends the request.
//
// Errors: those of Base. The outcome is unknown after any of them.
func (t *SendOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	once := r
	if r.GetBody != nil && !safe(r.Method) {
		once = bodyOnce(r)
	}
	for _, name := range []string{HeaderKey, "X-" + HeaderKey} {
		values, there := r.Header[name]
		if !there {
			continue
		}
		if once == r {
			once = r.Clone(r.Context())
		}
		// net/http looks for the canonical spelling. On the wire, case does not matter (RFC 9110, 5.1).
		delete(once.Header, name)
		once.Header[lower[name]] = values
	}
	resp, err := baseOf(t.Base).RoundTrip(once)
	if err == nil {
		resp.Request = r
	}
	return resp, err
}

var errSentOnce = errors.New("idemclient: the request was sent over HTTP/2, and is not sent again: its outcome is unknown")

// bodyOnce returns r with a body that is not made anew once r was sent over HTTP/2. net/http cannot repeat it then.
func bodyOnce(r *http.Request) *http.Request {
	var protocol2, sent atomic.Bool
	once := r.Clone(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) {
			t, is := c.Conn.(interface{ ConnectionState() tls.ConnectionState })
			protocol2.Store(is && t.ConnectionState().NegotiatedProtocol == "h2" || !is && r.URL.Scheme == "https")
		},
		WroteHeaders: func() { sent.Store(protocol2.Load()) },
	}))
	once.GetBody = func() (io.ReadCloser, error) {
		if sent.Load() {
			return nil, errSentOnce
		}
		return r.GetBody()
	}
	return once
}

// safe reports whether a method is safe by definition (RFC 9110, 9.2.1).
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// CloseIdleConnections closes the idle connections of Base. http.Client calls it.
func (t *SendOnce) CloseIdleConnections() { closeIdle(baseOf(t.Base)) }

var lower = map[string]string{HeaderKey: "idempotency-key", "X-" + HeaderKey: "x-idempotency-key"}

func baseOf(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		return http.DefaultTransport
	}
	return base
}

func closeIdle(base http.RoundTripper) {
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

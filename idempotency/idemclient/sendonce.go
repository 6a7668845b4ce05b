package idemclient

import (
	"net/http"
)

// SendOnce is an http.RoundTripper that sends a request at most once. The zero value is ready to use:
//
//	client := &http.Client{Transport: &idemclient.SendOnce{}}
//
// net/http takes a POST with the header Idempotency-Key for one that may be repeated: when a kept
// connection dies before the response, it sends the request again, within one call of http.Client.Do. A
// provider that honours the key does the work once. One that ignores it pays twice, and no record of
// the caller can tell. So use SendOnce in the function of an external call of package staged, unless
// its provider is known to honour keys.
//
// A request of which nothing was written to the connection is still sent on another one. Redirects
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

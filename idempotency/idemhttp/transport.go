package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Defaults of Transport.
const (
	DefaultAttempts = 4
	DefaultMaxPause = 30 * time.Second
)

// NewKey mints a key: a random UUID, as the draft recommends in section 2.2.
func NewKey() string { return uuid.NewString() }

type intentKey struct{}

// WithKey says which intent the requests sent with ctx are for: they bear key.
// Mint it where the intent is born, keep it with the intent, and use it again
// until an answer is [Definite], in another process if it must be: only the
// caller knows that two requests are one intent.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, intentKey{}, key)
}

// Transport is an http.RoundTripper that gives requests an Idempotency-Key and
// sends them again, with the same key, while the answer is open: after an
// error of the connection, 502, 503, 504, and 409, 425 or 429 with Retry-After.
// What is definite is never sent again. The zero value is ready.
//
// The key is that of the request's header, else that of [WithKey], else a new
// one for this request and its redirects alone; the response's Request bears it.
// A request is sent again only if it has no body, or GetBody (which
// http.NewRequest sets for the usual readers).
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Methods are those that get a key; all others pass through. Default:
	// POST and PATCH.
	Methods []string
	// Attempts bounds how often a request is sent. Default: 4; less than 1 is 4.
	Attempts int
	// MaxPause bounds the pause between two: a longer Retry-After ends the
	// attempts. Default: 30 s.
	MaxPause time.Duration
}

// RoundTrip sends the request until the answer is definite, the attempts are
// used up, or its context ends. The last response is returned, whatever it is.
//
// Errors: [*UnansweredError] when there was no response, [ErrKeyMalformed],
// the error of GetBody.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.base()
	methods := t.Methods
	if len(methods) == 0 {
		methods = []string{http.MethodPost, http.MethodPatch}
	}
	if !slices.Contains(methods, r.Method) {
		return base.RoundTrip(r)
	}
	keyed, key, err := withHeader(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it always
		}
		return nil, err
	}
	return t.send(base, keyed, key)
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// CloseIdleConnections is called by that of http.Client.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) send(base http.RoundTripper, r *http.Request, key string) (*http.Response, error) {
	attempts, longest := t.Attempts, t.MaxPause
	if attempts < 1 {
		attempts = DefaultAttempts
	}
	if longest <= 0 {
		longest = DefaultMaxPause
	}
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		attempts = 1
	}
	pauses := backoff.NewExponentialBackOff() // half a second, growing, with jitter
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, longest
	for n := 1; ; n++ {
		resp, err := base.RoundTrip(r)
		if err == nil {
			resp.Request = r
		}
		after, open := isOpen(resp, err)
		if !open || n == attempts || after > longest || r.Context().Err() != nil {
			return resp, unanswered(err, key, n)
		}
		if resp != nil {
			discard(resp)
		}
		if err := sleep(r.Context(), max(after, pauses.NextBackOff())); err != nil {
			return nil, unanswered(err, key, n)
		}
		if r, err = fresh(r); err != nil {
			return nil, err
		}
	}
}

// withHeader is a request of ours with a key: a RoundTripper must not change
// the one that it is given.
func withHeader(r *http.Request) (keyed *http.Request, key string, err error) {
	keyed = r.Clone(r.Context())
	if keyed.Header == nil {
		keyed.Header = http.Header{}
	}
	if value := r.Header.Get(HeaderKey); value != "" {
		if key, err = ParseKey(r.Header); err != nil {
			key = value // the caller's, and the server's to judge
		}
		return keyed, key, nil
	}
	key, ok := r.Context().Value(intentKey{}).(string)
	if !ok && r.Response != nil && r.Response.Request != nil { // this follows a redirect
		key, err = ParseKey(r.Response.Request.Header)
		ok = err == nil
	}
	if !ok {
		key = NewKey()
	}
	value, err := FormatKey(key)
	if err != nil {
		return nil, "", err
	}
	keyed.Header.Set(HeaderKey, value)
	return keyed, key, nil
}

// fresh is r with its body from the start.
func fresh(r *http.Request) (*http.Request, error) {
	r = r.Clone(r.Context())
	if r.GetBody == nil {
		return r, nil
	}
	var err error
	r.Body, err = r.GetBody()
	return r, err
}

// isOpen tells whether asking again will help, and how long the server wants
// us to wait at least.
func isOpen(resp *http.Response, err error) (after time.Duration, open bool) {
	if err != nil {
		return 0, true
	}
	if resp.Header.Get(HeaderReplayed) == "true" {
		return 0, false
	}
	after, given := parseRetryAfter(resp.Header.Get("Retry-After"))
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return after, true
	case http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return after, given
	}
	return 0, false
}

// Definite reports whether a response says for good what became of the intent,
// so that another intent may have another key: a replay, or what a server with
// [DefaultVerdict] keeps. After any other answer, use the key again.
func Definite(resp *http.Response) bool {
	if resp.Header.Get(HeaderReplayed) == "true" {
		return true
	}
	_, open := isOpen(resp, nil)
	return !open && DefaultVerdict(resp.StatusCode) != Discard
}

// parseRetryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func parseRetryAfter(value string) (time.Duration, bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at)), true
	}
	return 0, false
}

// discard reads what there is, within reason, so that the connection can be
// used again.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	_ = resp.Body.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// UnansweredError is a request whose outcome is not known: no response came.
// errors.Is(err, idempotency.ErrUnknown) holds.
type UnansweredError struct {
	// Key is the key that was sent: ask again with the same, see WithKey.
	Key string
	// Attempts is how often the request was sent.
	Attempts int
	// Err is the last error.
	Err error
}

func unanswered(err error, key string, attempts int) error {
	if err == nil {
		return nil
	}
	return &UnansweredError{Key: key, Attempts: attempts, Err: err}
}

func (e *UnansweredError) Error() string {
	return fmt.Sprintf("idemhttp: outcome unknown after %d attempts (ask again with the key %q): %v", e.Attempts, e.Key, e.Err)
}

// Is reports whether target is idempotency.ErrUnknown.
func (e *UnansweredError) Is(target error) bool { return target == idempotency.ErrUnknown }

func (e *UnansweredError) Unwrap() error { return e.Err }

// Timeout is asked by http.Client and its users.
func (e *UnansweredError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

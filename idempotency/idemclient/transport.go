package idemclient

import (
	"cmp"
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

	"github.com/holdfast-go/holdfast/idempotency/internal/wire"
	"github.com/holdfast-go/holdfast/internal/errcode"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Defaults of Transport.
const (
	defaultAttempts = 4
	defaultMaxPause = 30 * time.Second
)

// NewKey returns a new key: a random UUID, as section 2.2 of the draft recommends.
func NewKey() string { return uuid.NewString() }

type intentKey struct{}

// WithKey returns a context whose requests carry key. Generate the key where the intent begins,
// store it with the intent, and use it again until a response is [Definite], in another process if
// necessary: only the caller knows that two requests have the same intent.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, intentKey{}, key)
}

// Transport is an http.RoundTripper that adds an Idempotency-Key to requests and retries them,
// with the same key, while the outcome is open: after a connection error, 502, 503, 504, and after
// 409, 425 or 429 with Retry-After. It never retries after a definite response. The zero value is
// ready to use.
//
// The key is the one in the request's header, else the one of [WithKey], else a new one for this
// request and its redirects only; the response's Request carries it. A request is retried only if
// it has no body, or has GetBody (which http.NewRequest sets for the usual readers).
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Methods lists the methods that get a key; all others pass through. Default: POST and PATCH.
	Methods []string
	// Attempts bounds how often a request is sent. Default: 4; at most 1,000,000.
	Attempts int
	// MaxPause bounds the pause between two attempts. A longer Retry-After ends the attempts.
	// Default: 30 s; 1 ms to 24 h.
	MaxPause time.Duration
}

// RoundTrip sends the request until the response is definite, the attempts are used up, or the
// context ends. It returns the last response.
//
// Errors: [*UnansweredError] if there was no response, or none that settles it and GetBody failed; [ErrKeyMalformed], holdfast.ErrInvalid.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := baseOf(t.Base)
	methods := t.Methods
	if len(methods) == 0 {
		methods = []string{http.MethodPost, http.MethodPatch}
	}
	if !slices.Contains(methods, r.Method) {
		return base.RoundTrip(r)
	}
	keyed, key, err := withHeader(r)
	if err = cmp.Or(err, t.check()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must always close it
		}
		return nil, err
	}
	return t.send(base, keyed, key)
}

func (t *Transport) check() error {
	return cmp.Or(
		options.Attempts.Check("Transport.Attempts", int64(t.Attempts)),
		options.Pause.Check("Transport.MaxPause", t.MaxPause),
	)
}

// CloseIdleConnections closes the idle connections of Base. http.Client calls it.
func (t *Transport) CloseIdleConnections() { closeIdle(baseOf(t.Base)) }

func (t *Transport) send(base http.RoundTripper, r *http.Request, key string) (*http.Response, error) {
	attempts, longest := t.Attempts, t.MaxPause
	if attempts == 0 {
		attempts = defaultAttempts
	}
	if longest == 0 {
		longest = defaultMaxPause
	}
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		attempts = 1
	}
	pauses := backoff.NewExponentialBackOff() // starts at half a second and grows, with jitter
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
			return nil, unanswered(err, key, n)
		}
	}
}

// withHeader returns a copy of the request with a key, because a RoundTripper must not change its
// request.
func withHeader(r *http.Request) (keyed *http.Request, key string, err error) {
	keyed = r.Clone(r.Context())
	if keyed.Header == nil {
		keyed.Header = http.Header{}
	}
	if value := r.Header.Get(HeaderKey); value != "" {
		if key, err = ParseKey(r.Header); err != nil {
			key = value // set by the caller, checked by the server
		}
		return keyed, key, nil
	}
	key, ok := r.Context().Value(intentKey{}).(string)
	if !ok && r.Response != nil && r.Response.Request != nil { // r follows a redirect
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

// fresh returns r with its body from the start.
func fresh(r *http.Request) (*http.Request, error) {
	r = r.Clone(r.Context())
	if r.GetBody == nil {
		return r, nil
	}
	var err error
	r.Body, err = r.GetBody()
	return r, err
}

// isOpen reports whether a retry can help, and the minimum pause that the server requires.
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

// Definite reports whether a response is final for the intent, so that the next intent may use a
// new key: a replay, a question whether a similar request is meant ([HeaderConfirm]), or a response that a
// server with idemhttp.DefaultDecision stores. After any other response, use the same key again. 409, 412, 423 and 424 are about the moment, so they are not final. A
// 402 is, unless the service says that a key stays an order's after a decline (idemhttp.Options.Declined). 403 and 404 are if they
// are replayed: else a gateway, or a service that does not know for the moment who asks, may have sent them after an attempt that
// was executed and whose response was lost; asked again, a service that has stored one replays it. A 422 of idemhttp.ProblemMismatch
// says that the key was used for another request: look up what became of that before you take a new key.
// A refusal is final for as long as the service keeps it, by default 30 days: a request that was refused must
// not be sent again later, when it may be executed.
func Definite(resp *http.Response) bool {
	if resp.Header.Get(HeaderReplayed) == "true" || resp.Header.Get(HeaderConfirm) != "" {
		return true
	}
	_, open := isOpen(resp, nil)
	if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusNotFound {
		return false
	}
	return !open && resp.StatusCode < 500 && !slices.Contains(wire.NotFinal, resp.StatusCode)
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

// discard reads the rest of the body, up to a limit, so that the connection can be reused.
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

var _ = errcode.Type[*UnansweredError]("request-unanswered")

// UnansweredError reports a request that got no response, so its outcome is unknown.
// errors.Is(err, idempotency.ErrUnknown) holds.
type UnansweredError struct {
	// Key is the key that was sent. Retry with the same key, see WithKey.
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
	return fmt.Sprintf("idemclient: outcome unknown after %d attempts (ask again with the key %q): %v", e.Attempts, e.Key, e.Err)
}

// Is reports whether target is idempotency.ErrUnknown.
func (e *UnansweredError) Is(target error) bool { return target == errcode.ErrUnknown }

func (e *UnansweredError) Unwrap() error { return e.Err }

// Timeout reports whether the last error was a timeout. http.Client and its users call it.
func (e *UnansweredError) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

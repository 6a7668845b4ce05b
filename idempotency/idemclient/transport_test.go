package idemclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

var errBoom = errors.New("boom")

// script answers requests from a list and records what was sent.
type script struct {
	answers []func() (*http.Response, error)
	keys    []string
	bodies  []string
	closed  bool
}

// CloseIdleConnections records the call.
func (s *script) CloseIdleConnections() { s.closed = true }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.keys = append(s.keys, strings.Join(r.Header.Values(idemclient.HeaderKey), "|"))
	body := ""
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		body = string(text)
	}
	s.bodies = append(s.bodies, body)
	next := s.answers[min(len(s.keys), len(s.answers))-1]
	return next()
}

func reply(status int, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("x"))}, nil
	}
}

func broken() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// TestTransportAttempts checks that a request without a definite answer is sent again with the
// same key and the same body, and one with a definite answer is not.
func TestTransportAttempts(t *testing.T) {
	t.Parallel()
	type answers = []func() (*http.Response, error)
	past := time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)
	for what, c := range map[string]struct {
		answers answers
		sent    int
		status  int // 0: an error
	}{
		"created":                    {answers{reply(201)}, 1, 201},
		"conflict":                   {answers{reply(409)}, 1, 409},
		"mismatch":                   {answers{reply(422)}, 1, 422},
		"gone":                       {answers{reply(410)}, 1, 410},
		"internal error":             {answers{reply(500)}, 1, 500},
		"replayed unavailability":    {answers{reply(503, idemclient.HeaderReplayed, "true", "Retry-After", "0")}, 1, 503},
		"in progress":                {answers{reply(409, "Retry-After", "0"), reply(201)}, 2, 201},
		"in progress until":          {answers{reply(409, "Retry-After", past), reply(201)}, 2, 201},
		"unknown":                    {answers{reply(503, "Retry-After", "0"), reply(503), reply(201)}, 3, 201},
		"too many":                   {answers{reply(429, "Retry-After", "0"), reply(201)}, 2, 201},
		"too many, for good":         {answers{reply(429)}, 1, 429},
		"broken":                     {answers{broken, reply(201)}, 2, 201},
		"always broken":              {answers{broken}, 3, 0},
		"always unavailable":         {answers{reply(503, "Retry-After", "0")}, 3, 503},
		"wants more than is allowed": {answers{reply(503, "Retry-After", "3600")}, 1, 503},
		"nonsense in Retry-After":    {answers{reply(409, "Retry-After", "-1")}, 1, 409},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: c.answers}
			client := http.Client{Transport: &idemclient.Transport{Base: s, Attempts: 3, MaxPause: time.Minute}}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", strings.NewReader("body"))
			resp, err := client.Do(r)
			if len(s.keys) != c.sent {
				t.Errorf("sent %d times, want %d", len(s.keys), c.sent)
			}
			for i := range s.keys {
				if s.keys[i] != s.keys[0] || len(s.keys[i]) != 38 || s.bodies[i] != "body" {
					t.Errorf("sent %q with the key %s", s.bodies[i], s.keys[i])
				}
			}
			if len(r.Header) != 0 {
				t.Errorf("the caller's request was changed: %v", r.Header)
			}
			var open *idemclient.UnansweredError
			switch {
			case c.status == 0:
				if !errors.As(err, &open) || !errors.Is(err, idempotency.ErrUnknown) || !errors.Is(err, io.ErrUnexpectedEOF) ||
					open.Attempts != 3 || `"`+open.Key+`"` != s.keys[0] {
					t.Errorf("got %v", err)
				}
			case err != nil || resp.StatusCode != c.status:
				t.Errorf("got %v, %v, want %d", resp, err, c.status)
			default:
				if resp.Request.Header.Get(idemclient.HeaderKey) != s.keys[0] {
					t.Error("the response does not tell its key")
				}
				resp.Body.Close()
			}
		})
	}
}

// TestTransportKeys checks which key a request carries.
func TestTransportKeys(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func() (*http.Response, error){reply(200)}}
	tr := &idemclient.Transport{Base: s}
	do := func(ctx context.Context, method, header string) (string, error) {
		r, _ := http.NewRequestWithContext(ctx, method, "http://x/", nil)
		if header != "" {
			r.Header.Set(idemclient.HeaderKey, header)
		}
		before := len(s.keys)
		resp, err := tr.RoundTrip(r)
		if resp != nil {
			resp.Body.Close()
		}
		if len(s.keys) == before {
			return "", err
		}
		return s.keys[before], err
	}
	ctx := idemclient.WithKey(t.Context(), `A-17/"1"`)
	for _, c := range []struct {
		ctx                  context.Context
		method, header, want string
	}{
		{ctx, "POST", "", `"A-17/\"1\""`},
		{ctx, "PATCH", "", `"A-17/\"1\""`},
		{ctx, "POST", "own", "own"},
		{ctx, "GET", "", ""},
		{ctx, "PUT", "", ""},
	} {
		if got, err := do(c.ctx, c.method, c.header); got != c.want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", c.method, got, err, c.want)
		}
	}
	one, _ := do(t.Context(), "POST", "")
	two, _ := do(t.Context(), "POST", "")
	if one == two {
		t.Error("two intents got one key")
	}
	before := len(s.keys)
	if _, err := do(idemclient.WithKey(t.Context(), ""), "POST", ""); !errors.Is(err, idemclient.ErrKeyMalformed) || len(s.keys) != before {
		t.Errorf("an empty key: %v", err)
	}
}

// TestTransportBounds checks that a body that cannot be read again is sent once, and that the
// end of the context ends the pause between attempts.
func TestTransportBounds(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func() (*http.Response, error){broken}}
	client := http.Client{Transport: &idemclient.Transport{Base: s}}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/", io.MultiReader(strings.NewReader("once")))
	if _, err := client.Do(r); !errors.Is(err, idempotency.ErrUnknown) || len(s.keys) != 1 {
		t.Errorf("%v after %d attempts", err, len(s.keys))
	}
	if client.CloseIdleConnections(); !s.closed {
		t.Error("the client's idle connections stay open")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	s = &script{answers: []func() (*http.Response, error){func() (*http.Response, error) {
		cancel(errBoom)
		return reply(503, "Retry-After", "20")()
	}}}
	tr := &idemclient.Transport{Base: s}
	r, _ = http.NewRequestWithContext(ctx, http.MethodPost, "http://x/", nil)
	if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != http.StatusServiceUnavailable || len(s.keys) != 1 {
		t.Errorf("a context that ended: %v, %v after %d attempts", resp, err, len(s.keys))
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	s = &script{answers: []func() (*http.Response, error){reply(503, "Retry-After", "20")}}
	tr = &idemclient.Transport{Base: s}
	r, _ = http.NewRequestWithContext(ctx, http.MethodPost, "http://x/", nil)
	_, err := tr.RoundTrip(r)
	var timeout interface{ Timeout() bool }
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("a context that ends in the pause: %v", err)
	}
}

// TestTransportRedirect checks that a redirect that repeats the request keeps the key.
func TestTransportRedirect(t *testing.T) {
	t.Parallel()
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Method+r.Header.Get(idemclient.HeaderKey))
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	client := http.Client{Transport: &idemclient.Transport{Base: server.Client().Transport}}
	resp, err := client.Post(server.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if len(keys) != 2 || keys[0] != keys[1] || !strings.HasPrefix(keys[1], `POST"`) {
		t.Errorf("sent %v", keys)
	}
}

// TestDefinite checks which answers allow a client to use another key.
func TestDefinite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply func() (*http.Response, error)
		want  bool
	}{
		{reply(200), true},
		{reply(201), true},
		{reply(303), true},
		{reply(402), true},
		{reply(403), false},
		{reply(403, idemclient.HeaderReplayed, "true"), true},
		{reply(404), false},
		{reply(404, idemclient.HeaderReplayed, "true"), true},
		{reply(409), false},
		{reply(409, idemclient.HeaderConfirm, "0123456789abcdef0123456789abcdef"), true},
		{reply(412), false},
		{reply(423), false},
		{reply(424), false},
		{reply(410), true},
		{reply(422), true},
		{reply(409, "Retry-After", "1"), false},
		{reply(400), false},
		{reply(401), false},
		{reply(429), false},
		{reply(500), false},
		{reply(502), false},
		{reply(503), false},
		{reply(503, idemclient.HeaderReplayed, "true"), true},
	} {
		resp, _ := c.reply()
		if idemclient.Definite(resp) != c.want {
			t.Errorf("%d %v: want %v", resp.StatusCode, resp.Header, c.want)
		}
		resp.Body.Close()
	}
}

package console_test

import (
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func onSQLite(t *testing.T) *conformance.Env[*sql.Tx] {
	t.Helper()
	t.Parallel()
	return conformance.New(t, conformance.SQL(), dbtest.SQLite)
}

var (
	pages = []string{"", "locks", "operations", "operation?id=00", "reaper", "proposals", "proposal?id=00", "sessions", "nowhere"}
	// sessionPosts are also allowed in a read-only console.
	sessionPosts = []string{"end-session", "end-sessions"}
	posts        = []string{"confirm-release", "release", "confirm-resolve", "resolve", "confirm", "nowhere", "operations", ""}
)

// Without the token, every page and every action is refused.
func TestToken(t *testing.T) {
	e := onSQLite(t)
	s := serve(e, console.Options{Write: true})
	if _, err := s.locker("w").Acquire(s.Ctx, "a-secret-key"); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		for _, p := range pages {
			if status, body := s.get(p); status != http.StatusUnauthorized || strings.Contains(body, "a-secret-key") || !strings.Contains(body, `action="login"`) {
				t.Errorf("GET %s: %d, %s", p, status, body)
			}
		}
		for _, p := range slices.Concat(sessionPosts, posts) {
			if status, _ := s.post(p, nil); status != http.StatusUnauthorized {
				t.Errorf("POST %s: %d", p, status)
			}
		}
	}
	refused()
	base, _ := url.Parse(s.URL)
	for _, wrong := range []string{"", "x", token[1:], token + "x", strings.ToUpper(token)} {
		if status, body := s.post("login", url.Values{"token": {wrong}}); status != http.StatusUnauthorized || !strings.Contains(body, "That is not the token.") {
			t.Errorf("%q: %d, %s", wrong, status, body)
		}
	}
	refused()
	if status, body := s.post("login", url.Values{"token": {token}}); status != http.StatusOK || !strings.Contains(body, "Overview") {
		t.Errorf("%d, %s", status, body)
	}
	if status, body := s.get("locks"); status != http.StatusOK || !strings.Contains(body, "a-secret-key") {
		t.Errorf("%d, %s", status, body)
	}
	cookies := s.client.Jar.Cookies(base)
	if len(cookies) != 1 || strings.Contains(cookies[0].Value, token) {
		t.Fatalf("got %v", cookies)
	}
	if s.post("logout", nil); len(s.client.Jar.Cookies(base)) != 0 {
		t.Error("the cookie stays")
	}
	refused()
	// A cookie that was signed with another token, or changed.
	good := cookies[0].Value
	for _, bad := range []string{"", "x", good[:len(good)-2] + "AA", "A" + good[1:], "_" + good[1:]} {
		if bad == good {
			continue
		}
		s.client.Jar.SetCookies(base, []*http.Cookie{{Name: cookies[0].Name, Value: bad, Path: "/"}})
		refused()
	}
	other := serve(e, console.Options{Token: "another token of a length"})
	if status, _ := other.post("login", url.Values{"token": {token}}); status != http.StatusUnauthorized {
		t.Error("a token of another console's")
	}
}

// Repeated wrong tokens are slowed down, only for the client that sends them.
func TestTokenGuesses(t *testing.T) {
	s := serve(onSQLite(t), console.Options{})
	for range 10 {
		s.post("login", url.Values{"token": {"wrong"}})
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodTrace, "FOO"} {
		r, _ := http.NewRequestWithContext(s.Ctx, method, s.URL, nil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if status, _, _ := s.do(r); status != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, status)
		}
	}
	r, _ := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+"login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if status, body, header := s.do(r); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(body, "Try again") {
		t.Errorf("%d %v %s", status, header, body)
	}
}

// A read-only console refuses every POST, with or without the token.
func TestReadOnly(t *testing.T) {
	e := onSQLite(t)
	for _, s := range []*site{signedIn(e, console.Options{}), serve(e, console.Options{BehindOwnAuthentication: true})} {
		if _, err := s.locker("w").TryAcquire(s.Ctx, "order/"+s.URL); err != nil {
			t.Fatal(err)
		}
		_, body := s.get("locks")
		if strings.Contains(body, "Release") || !strings.Contains(body, "read-only") || !strings.Contains(body, "order/") {
			t.Error(body)
		}
		for _, p := range posts {
			if status, body := s.post(p, url.Values{"kind": {"lease"}}); status != http.StatusForbidden && (p == posts[0] || status != http.StatusNotFound) {
				t.Errorf("POST %s: %d %s", p, status, body)
			}
		}
	}
}

// A request that another site makes a browser send is refused, with or without the cookie.
func TestCrossOrigin(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{Write: true})
	for name, set := range map[string]func(h http.Header){
		"another site":     func(h http.Header) { h.Set("Sec-Fetch-Site", "cross-site") },
		"a sister domain":  func(h http.Header) { h.Set("Sec-Fetch-Site", "same-site") },
		"another origin":   func(h http.Header) { h.Set("Origin", "https://evil.example") },
		"an opaque origin": func(h http.Header) { h.Set("Origin", "null") },
	} {
		for _, p := range slices.Concat([]string{"login", "logout"}, sessionPosts, posts) {
			r, _ := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+p, strings.NewReader(url.Values{"token": {token}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			set(r.Header)
			if status, body, header := s.do(r); status != http.StatusForbidden || !strings.Contains(body, "another site") || header.Get("Set-Cookie") != "" {
				t.Errorf("%s, %s: %d %s", name, p, status, body)
			}
		}
	}
}

func TestHeaders(t *testing.T) {
	s := serve(onSQLite(t), console.Options{})
	for _, p := range append(pages, "style.css", "script.js") {
		r, _ := http.NewRequestWithContext(s.Ctx, http.MethodGet, s.URL+p, nil)
		_, body, h := s.do(r)
		policy := h.Get("Content-Security-Policy")
		if h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %v", p, h)
		}
		if !strings.HasSuffix(h.Get("Content-Type"), "; charset=utf-8") || h.Get("Server")+h.Get("X-Powered-By")+h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", p, h)
		}
		if strings.Contains(body, "http://") || strings.Contains(body, "https://") || strings.Contains(body, `href="/`) || strings.Contains(body, `src="/`) || strings.Contains(body, " style=") || strings.Contains(body, "<script>") {
			t.Errorf("%s loads or leads elsewhere: %s", p, body)
		}
	}
	r, _ := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+"login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	_, _, h := s.do(r)
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Max-Age=43200"} {
		if !strings.Contains(h.Get("Set-Cookie"), want) {
			t.Errorf("%s is not in %s", want, h.Get("Set-Cookie"))
		}
	}
	if strings.Contains(h.Get("Set-Cookie"), "Path=") {
		t.Errorf("the prefix is not known: %s", h.Get("Set-Cookie"))
	}
}

func TestOptions(t *testing.T) {
	e := onSQLite(t)
	for name, o := range map[string]console.Options{
		"no token": {}, "a short one": {Token: strings.Repeat("x", console.MinToken-1)},
		"both":                    {Token: token, BehindOwnAuthentication: true},
		"one that a person chose": {Token: strings.Repeat("hunter2 ", 4)},
		"a path without a slash":  {Token: token, Path: "/ops"}, "one that is not from the root": {Token: token, Path: "ops/"},
	} {
		if _, err := console.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := console.New[*sql.Tx](e.Ctx, nil, console.Options{Token: token}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Error(err)
	}
}

package console_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/console"
)

// cookies returns those of the site's client.
func (s *site) cookies() []*http.Cookie {
	base, _ := url.Parse(s.URL)
	return s.client.Jar.Cookies(base)
}

// signIn posts a token, with more headers, and returns the status.
func (s *site) signIn(token string, headers ...string) int {
	s.Helper()
	r, _ := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+"login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	status, _, _ := s.do(r)
	return status
}

// Nothing that a stranger gets depends on the token, and two consoles with one token share no session:
// one may be read-only.
func TestSessionsAreOfOneConsole(t *testing.T) {
	e := onSQLite(t)
	shows, writes := signedIn(e, console.Options{}), signedIn(e, console.Options{Write: true})
	if a, b := shows.cookies()[0], writes.cookies()[0]; a.Name == b.Name {
		t.Errorf("both consoles have %s", a.Name)
	}
	again := signedIn(e, console.Options{})
	if a, b := shows.cookies()[0], again.cookies()[0]; a.Name == b.Name || a.Value == b.Value {
		t.Errorf("with the same token, %v and %v", a, b)
	}
	base, _ := url.Parse(writes.URL)
	writes.client.Jar.SetCookies(base, []*http.Cookie{{Name: writes.cookies()[0].Name, Value: shows.cookies()[0].Value, Path: "/"}})
	stranger := serve(e, console.Options{})
	for _, path := range []string{"login", "logout", "release"} {
		r, _ := http.NewRequestWithContext(e.Ctx, http.MethodPost, stranger.URL+path, strings.NewReader("token=wrong"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if _, _, header := stranger.do(r); header.Get("Set-Cookie") != "" {
			t.Errorf("%s sets %s before anybody signed in", path, header.Get("Set-Cookie"))
		}
	}
}

// Signing out ends the session on the server: a copy of its cookie is worth nothing.
func TestSignOutEndsCopies(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{})
	thief := *s
	jar, _ := cookiejar.New(nil)
	base, _ := url.Parse(s.URL)
	jar.SetCookies(base, s.cookies())
	thief.client = &http.Client{Jar: jar, Transport: s.client.Transport}
	if status, _ := thief.get(""); status != http.StatusOK {
		t.Fatal(status)
	}
	s.post("logout", nil)
	if status, _ := thief.get(""); status != http.StatusUnauthorized {
		t.Errorf("after signing out, a copy of the cookie gets %d", status)
	}
}

// Guesses at the same moment are counted before they are judged.
func TestParallelGuesses(t *testing.T) {
	s := serve(onSQLite(t), console.Options{})
	var guesses sync.WaitGroup
	var mu sync.Mutex
	judged := 0
	for range 100 {
		guesses.Go(func() {
			if s.signIn("wrong") == http.StatusUnauthorized {
				mu.Lock()
				judged++
				mu.Unlock()
			}
		})
	}
	guesses.Wait()
	if judged != 10 {
		t.Errorf("%d guesses of 100 were judged", judged)
	}
}

// Wrong tokens from many places do not keep the right one out from elsewhere.
func TestGuessesFromElsewhere(t *testing.T) {
	s := serve(onSQLite(t), console.Options{ClientAddr: func(r *http.Request) string { return r.Header.Get("Client") }})
	for i := range 100 {
		from := "192.0.2." + string(rune('0'+i%10))
		if i >= 10 {
			from = "2001:db8::" + string(rune('a'+i%6)) // one network, so one client
		}
		for range 2 {
			s.signIn("wrong", "Client", from)
		}
	}
	if status := s.signIn(token, "Client", "2001:db8::ffff"); status != http.StatusTooManyRequests {
		t.Errorf("another address of a network that guessed: %d", status)
	}
	if status := s.signIn(token, "Client", "198.51.100.7"); status != http.StatusOK {
		t.Errorf("from elsewhere, the right token gets %d", status)
	}
}

// A request under a name that is not the console's is refused in every mode: a page of another site may
// have made its name lead here.
func TestHost(t *testing.T) {
	e := onSQLite(t)
	for _, c := range []struct {
		o    console.Options
		host string
		ok   bool
	}{
		{console.Options{}, "evil.example:80", false},
		{console.Options{}, "127.0.0.1.evil.example", false},
		{console.Options{}, "localhost:8081", true},
		{console.Options{}, "[::1]:8081", true},
		{console.Options{BehindOwnAuthentication: true}, "evil.example", false},
		{console.Options{BehindOwnAuthentication: true, Write: true}, "evil.example", false},
		{console.Options{Hosts: []string{"ops.shop.example"}}, "OPS.shop.example:443", true},
		{console.Options{Hosts: []string{"ops.shop.example"}}, "localhost", false},
		{console.Options{Hosts: []string{console.AnyHost}}, "evil.example", true},
	} {
		s := serve(e, c.o)
		for _, path := range []string{"", "style.css", "operations"} {
			r, _ := http.NewRequestWithContext(s.Ctx, http.MethodGet, s.URL+path, nil)
			r.Host = c.host
			if status, body, _ := s.do(r); (status != http.StatusMisdirectedRequest) != c.ok || !c.ok && strings.Contains(body, "<form") {
				t.Errorf("%+v, %s/%s: %d", c.o, c.host, path, status)
			}
		}
	}
}

// MayWrite says who of those who see the console may change anything.
func TestMayWrite(t *testing.T) {
	e := onSQLite(t)
	s := serve(e, console.Options{BehindOwnAuthentication: true, Write: true, MayWrite: func(r *http.Request) bool { return r.Header.Get("Group") == "ops" }})
	if _, err := s.locker("w").TryAcquire(s.Ctx, "order/7"); err != nil {
		t.Fatal(err)
	}
	for group, may := range map[string]bool{"": false, "support": false, "ops": true} {
		r, _ := http.NewRequestWithContext(s.Ctx, http.MethodGet, s.URL+"locks", nil)
		r.Header.Set("Group", group)
		if _, body, _ := s.do(r); strings.Contains(body, "Release") != may {
			t.Errorf("%q: %s", group, body)
		}
		r, _ = http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+"release", strings.NewReader("kind=lease"))
		r.Header.Set("Group", group)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if status, _, _ := s.do(r); (status != http.StatusForbidden) != may {
			t.Errorf("%q: POST is answered with %d", group, status)
		}
	}
}

// Who signed in, out or was refused is logged, with the address, and without the token.
func TestSignInsAreLogged(t *testing.T) {
	var log bytes.Buffer
	o := console.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
	s := signedIn(onSQLite(t), o)
	s.post("release", nil)
	s.signIn("a wrong token", "Sec-Fetch-Site", "same-origin")
	s.signIn(token, "Sec-Fetch-Site", "cross-site")
	s.another("")
	s.post("end-sessions", nil)
	s.post("logout", nil)
	for _, want := range []string{"signed in", "signed out", "sessions were ended", "a wrong token", "only look", "another site", "127.0.0.1"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is not logged", want)
		}
	}
	if strings.Contains(log.String(), token) {
		t.Error("the token is logged")
	}
}

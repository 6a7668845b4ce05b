package console_test

import (
	"database/sql"
	"io"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// another returns another browser at the same console, signed in. Each of its requests has the header Person.
func (s *site) another(person string) *site {
	s.Helper()
	jar, _ := cookiejar.New(nil)
	other := &site{Env: s.Env, URL: s.URL, client: &http.Client{Jar: jar, Transport: as{person, s.client.Transport}}}
	if status, body := other.post("login", url.Values{"token": {token}}); status != http.StatusOK {
		s.Fatal(status, body)
	}
	return other
}

// as sends requests of a person.
type as struct {
	person string
	http.RoundTripper
}

func (a as) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Person", a.person)
	return a.RoundTripper.RoundTrip(r)
}

func (s *site) signedInStill() bool {
	s.Helper()
	status, _ := s.get("reaper")
	return status == http.StatusOK
}

// sessions returns the page of sessions and the forms that end one.
func (s *site) sessions() (page string, forms []url.Values) {
	s.Helper()
	status, page := s.get("sessions")
	if status != http.StatusOK {
		s.Fatal(status, page)
	}
	s.want(page, "this one", "127.0.0.1")
	return page, s.forms(page, "end-session")
}

// TestSessions has a browser see the other sessions and end one of them, and then all.
func TestSessions(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{}) // sessions are ended in a read-only console, too
	page, forms := s.sessions()
	if len(forms) != 0 || strings.Contains(page, "End all others") || !strings.Contains(page, `href="sessions"`) {
		t.Errorf("one that is alone: %s", page)
	}
	second, third := s.another(""), s.another("")
	page, forms = s.sessions()
	if len(forms) != 2 || len(s.forms(page, "end-sessions")) != 1 {
		t.Fatalf("%d forms in\n%s", len(forms), page)
	}
	for _, cookie := range append(s.cookies(), append(second.cookies(), third.cookies()...)...) {
		if strings.Contains(page, cookie.Value) {
			t.Error("a session's cookie is shown")
		}
	}
	// The one used last is the first in the list.
	if !third.signedInStill() {
		t.Fatal("the third is not signed in")
	}
	_, forms = s.sessions()
	if _, page := s.post("end-session", forms[0]); !strings.Contains(page, "Ended.") {
		t.Error(page)
	}
	if third.signedInStill() || !second.signedInStill() || !s.signedInStill() {
		t.Error("not the third has ended, or not alone")
	}
	if _, page := s.post("end-session", forms[0]); !strings.Contains(page, "Nothing was changed") {
		t.Error(page)
	}
	if status, _ := s.post("end-session", nil); status != http.StatusBadRequest || !second.signedInStill() {
		t.Errorf("a form without a session: %d", status)
	}
	s.another("")
	s.post("end-sessions", nil)
	if _, forms := s.sessions(); len(forms) != 0 || second.signedInStill() || !s.signedInStill() {
		t.Error("not all others have ended")
	}
	// A request of another site does not end any: see TestCrossOrigin.
}

// TestSessionsOfAPerson shows and ends only the sessions of one person, where people have names.
func TestSessionsOfAPerson(t *testing.T) {
	s := serve(onSQLite(t), console.Options{Actor: func(r *http.Request) string { return r.Header.Get("Person") }})
	ada, laptop, ben := s.another("ada"), s.another("ada"), s.another("ben")
	page, forms := ada.sessions()
	if len(forms) != 1 || !strings.Contains(page, "signed in as ada") {
		t.Fatalf("ada sees %s", page)
	}
	_, ofBen := ben.sessions()
	if len(ofBen) != 0 {
		t.Errorf("ben sees ada's: %v", ofBen)
	}
	if _, page := ben.post("end-session", forms[0]); !strings.Contains(page, "Nothing was changed") {
		t.Errorf("ben ends ada's: %s", page)
	}
	ben.post("end-sessions", nil)
	if !ada.signedInStill() || !laptop.signedInStill() {
		t.Error("ben has ended ada's")
	}
	ada.post("end-sessions", nil)
	if laptop.signedInStill() || !ben.signedInStill() || !ada.signedInStill() {
		t.Error("ada has ended another's, or not her own")
	}
}

// TestManySessions bounds the list.
func TestManySessions(t *testing.T) {
	s := signedIn(onSQLite(t), console.Options{})
	for range 60 {
		s.another("")
	}
	page, forms := s.sessions()
	if len(forms) != 50 || !strings.Contains(page, "and 10 more") {
		t.Errorf("%d are shown", len(forms))
	}
	s.post("end-sessions", nil)
	if _, forms := s.sessions(); len(forms) != 0 {
		t.Errorf("%d are left", len(forms))
	}
}

// TestNoSessionsOfOurs has no page where the program authenticates.
func TestNoSessionsOfOurs(t *testing.T) {
	s := serve(onSQLite(t), console.Options{BehindOwnAuthentication: true, Write: true})
	if status, page := s.get("sessions"); status != http.StatusNotFound || strings.Contains(page, `href="sessions"`) {
		t.Error(status, page)
	}
	for _, p := range sessionPosts {
		if status, _ := s.post(p, url.Values{"session": {"x"}}); status != http.StatusNotFound {
			t.Errorf("%s: %d", p, status)
		}
	}
}

// serveAt serves a console at a path, over TLS or not.
func serveAt(e *conformance.Env[*sql.Tx], at string, tls bool, o console.Options) *site {
	e.Helper()
	o.Token = token
	ending := make(chan struct{})
	o.Ending = ending
	h, err := console.New(e.Ctx, e.DB, o)
	e.Check(err)
	mux := http.NewServeMux()
	mux.Handle(at, http.StripPrefix(strings.TrimSuffix(at, "/"), h))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // a browser tries the certificate first
	if tls {
		server.StartTLS()
	} else {
		server.Start()
	}
	e.Cleanup(func() { close(ending); server.Close() })
	client := server.Client()
	client.Jar, _ = cookiejar.New(nil)
	return &site{Env: e, URL: server.URL + at, client: client}
}

// TestCookiePrefix checks the cookie's name: __Host- at the root of a host with TLS, __Secure- below a path
// there, and neither without TLS. A cookie without the prefix is then no session.
func TestCookiePrefix(t *testing.T) {
	e := onSQLite(t)
	for _, c := range []struct {
		what, at string
		tls      bool
		o        console.Options
		want     string
	}{
		{"at the root, TLS", "/", true, console.Options{}, `^__Host-holdfast_console_\w{8}=\w+; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict$`},
		{"below a path, TLS", "/ops/", true, console.Options{}, `^__Secure-holdfast_console_\w{8}=\w+; Max-Age=43200; HttpOnly; Secure; SameSite=Strict$`},
		{"at the root", "/", false, console.Options{}, `^holdfast_console_\w{8}=\w+; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict$`},
		{"below a path", "/ops/", false, console.Options{}, `^holdfast_console_\w{8}=\w+; Max-Age=43200; HttpOnly; SameSite=Strict$`},
		{"behind a proxy with TLS", "/", false, console.Options{SecureCookie: true}, `^__Host-holdfast_console_\w{8}=\w+; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict$`},
		{"behind one that takes a path away", "/", false, console.Options{SecureCookie: true, Path: "/ops/"}, `^__Secure-holdfast_console_\w{8}=\w+; Max-Age=43200; HttpOnly; Secure; SameSite=Strict$`},
		{"behind one that adds a path", "/ops/", false, console.Options{SecureCookie: true, Path: "/"}, `^__Host-holdfast_console_\w{8}=\w+; Path=/; Max-Age=43200; HttpOnly; Secure; SameSite=Strict$`},
	} {
		s := serveAt(e, c.at, c.tls, c.o)
		r, _ := http.NewRequestWithContext(s.Ctx, http.MethodPost, s.URL+"login", strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		_, _, h := s.do(r)
		cookie := h.Get("Set-Cookie")
		if !regexp.MustCompile(c.want).MatchString(cookie) {
			t.Errorf("%s: %s", c.what, cookie)
		}
		nameAndValue, _, _ := strings.Cut(cookie, ";")
		send := func(method, path, cookie string) (status int, header http.Header) {
			r, _ := http.NewRequestWithContext(s.Ctx, method, s.URL+path, nil)
			r.Header.Set("Cookie", cookie)
			status, _, header = s.do(r)
			return status, header
		}
		s.client.Jar = nil
		bare := strings.TrimPrefix(strings.TrimPrefix(nameAndValue, "__Host-"), "__Secure-")
		for _, prefix := range []string{"", "__Secure-", "__Host-"} {
			want := http.StatusUnauthorized
			if prefix+bare == nameAndValue {
				want = http.StatusOK
			}
			if status, _ := send(http.MethodGet, "", prefix+bare); status != want {
				t.Errorf("%s: a cookie %s…: %d, want %d", c.what, prefix, status, want)
			}
		}
		// Signing out deletes the cookie that was set.
		_, h = send(http.MethodPost, "logout", nameAndValue)
		name, _, _ := strings.Cut(nameAndValue, "=")
		if out := h.Get("Set-Cookie"); !strings.HasPrefix(out, name+"=;") || !strings.Contains(out, "Max-Age=0") || strings.Contains(out, "Path=/") != strings.Contains(cookie, "Path=/") {
			t.Errorf("%s: signing out: %s", c.what, out)
		}
	}
}

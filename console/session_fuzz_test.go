package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// FuzzCookie checks that no Cookie field but that of a session opens the console, alone or beside others.
func FuzzCookie(f *testing.F) {
	s := newSessions("token", &Options{}, time.Now)
	begun := httptest.NewRecorder()
	s.begin(begun, httptest.NewRequest(http.MethodGet, "/", nil))
	id := begun.Result().Cookies()[0].Value
	for _, v := range []string{``, `a=b`, s.cookie + `=`, s.cookie + `=token`, s.cookie + `="` + id[1:] + `"`, `x=` + id, s.cookie + "=\x00"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, field string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Cookie", field)
		if s.has(r) && !strings.Contains(field, id) {
			t.Fatalf("%q is a session", field)
		}
		out := httptest.NewRecorder()
		s.end(out, r)
		own := httptest.NewRequest(http.MethodGet, "/", nil)
		own.AddCookie(&http.Cookie{Name: s.cookie, Value: id})
		if !strings.Contains(field, id) && !s.has(own) {
			t.Fatalf("%q ended the session of another", field)
		}
	})
}

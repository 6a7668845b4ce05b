package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestSessionsEnd checks that a session ends some time after its last request, and in any case at the end
// of its life.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	s := newSessions("token", &Options{}, func() time.Time { return now })
	signIn := func() *http.Request {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", nil)
		s.begin(w, r)
		r = httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(w.Result().Cookies()[0])
		return r
	}
	idle := signIn()
	now = now.Add(SessionIdle - 1)
	busy := signIn()
	if !s.has(idle) {
		t.Error("a session ends before it is idle")
	}
	now = now.Add(SessionIdle)
	if s.has(idle) || s.has(busy) {
		t.Error("an idle session goes on")
	}
	busy = signIn()
	for end := now.Add(SessionLife); now.Before(end); now = now.Add(SessionIdle / 2) {
		if !s.has(busy) {
			t.Fatal("a session in use ends")
		}
	}
	if s.has(busy) {
		t.Error("a session outlives its life")
	}
}

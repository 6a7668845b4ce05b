package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"
)

// maxSessions bounds the memory of sessions; the one that ends first makes room.
const maxSessions = 1000

// sessions are the browsers that are signed in. A browser has a random text, of which the console keeps
// the hash, so that neither says anything about the token.
type sessions struct {
	token  [sha256.Size]byte
	cookie string
	secure bool
	now    func() time.Time

	mu   sync.Mutex
	ends map[[sha256.Size]byte]session
}

// session ends at the time of end, and at idle unless a request comes first.
type session struct{ end, idle time.Time }

func (s session) over(now time.Time) bool { return !now.Before(s.end) || !now.Before(s.idle) }

func newSessions(token string, secure bool, now func() time.Time) *sessions {
	// Cookies ignore the port, so two consoles on a host need two names.
	return &sessions{
		token: sha256.Sum256([]byte(token)), cookie: "holdfast_console_" + rand.Text()[:8], secure: secure, now: now,
		ends: map[[sha256.Size]byte]session{},
	}
}

// is reports whether this is the token, in constant time.
func (s *sessions) is(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

// begin signs the browser in. The cookie's path is the one below which the console is mounted. The
// browser knows that path and this handler does not.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request) {
	id, now := rand.Text(), s.now()
	s.mu.Lock()
	first := [sha256.Size]byte{}
	for hash, one := range s.ends {
		if one.over(now) {
			delete(s.ends, hash)
		} else if first == ([sha256.Size]byte{}) || one.end.Before(s.ends[first].end) {
			first = hash
		}
	}
	if len(s.ends) >= maxSessions {
		delete(s.ends, first)
	}
	s.ends[sha256.Sum256([]byte(id))] = session{now.Add(SessionLife), now.Add(SessionIdle)}
	s.mu.Unlock()
	s.set(w, r, id, int(SessionLife.Seconds()))
}

// end signs the browser out: its cookie is worth nothing from then on, copied or not. It reports whether
// the browser was signed in.
func (s *sessions) end(w http.ResponseWriter, r *http.Request) (was bool) {
	cookies := r.CookiesNamed(s.cookie)
	if len(cookies) == 0 {
		return false
	}
	s.mu.Lock()
	for _, cookie := range cookies {
		hash := sha256.Sum256([]byte(cookie.Value))
		_, there := s.ends[hash]
		was = was || there
		delete(s.ends, hash)
	}
	s.mu.Unlock()
	s.set(w, r, "", -1)
	return was
}

func (s *sessions) set(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where there is TLS: on the loopback address there is none
		Name: s.cookie, Value: value, MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.secure || r.TLS != nil,
	})
}

// has reports whether the request comes from a browser that is signed in.
func (s *sessions) has(r *http.Request) bool {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cookie := range r.CookiesNamed(s.cookie) {
		hash := sha256.Sum256([]byte(cookie.Value))
		if one, ok := s.ends[hash]; ok && !one.over(now) {
			one.idle = now.Add(SessionIdle)
			s.ends[hash] = one
			return true
		}
	}
	return false
}

package console

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxSessions bounds the memory of sessions; the one that ends first makes room.
const maxSessions = 1000

// sessions are the browsers that are signed in. A browser has a random text, of which the console keeps
// the hash, so that neither says anything about the token.
type sessions struct {
	token   [sha256.Size]byte
	cookie  string // its name, without a prefix
	options *Options
	now     func() time.Time

	mu  sync.Mutex
	all map[[sha256.Size]byte]*session
}

// session is one browser.
type session struct {
	// Ref names the session on the page of sessions. It is another random text, and no cookie.
	Ref string
	// Name is the person who signed in, if Options.Actor says it.
	Name string
	// Began and Used are the times of the first and the last request, From and UsedFrom their addresses.
	Began, Used    time.Time
	From, UsedFrom string
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.Began) >= SessionLife || now.Sub(s.Used) >= SessionIdle
}

func newSessions(token string, o *Options, now func() time.Time) *sessions {
	// Cookies ignore the port, so two consoles on a host need two names.
	return &sessions{
		token: sha256.Sum256([]byte(token)), cookie: "holdfast_console_" + rand.Text()[:8], options: o, now: now,
		all: map[[sha256.Size]byte]*session{},
	}
}

// is reports whether this is the token, in constant time.
func (s *sessions) is(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

// begin signs the browser in.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request) {
	id, now, from := rand.Text(), s.now(), s.options.client(r)
	one := &session{Ref: rand.Text(), Name: s.options.person(r), Began: now, Used: now, From: from, UsedFrom: from}
	s.mu.Lock()
	var first [sha256.Size]byte
	for hash, other := range s.all {
		if other.over(now) {
			delete(s.all, hash)
		} else if s.all[first] == nil || other.Began.Before(s.all[first].Began) {
			first = hash
		}
	}
	if len(s.all) >= maxSessions {
		delete(s.all, first)
	}
	s.all[sha256.Sum256([]byte(id))] = one
	s.mu.Unlock()
	s.set(w, r, id, int(SessionLife.Seconds()))
}

// end signs the browser out: its cookie is worth nothing from then on, copied or not. It reports whether
// the browser was signed in.
func (s *sessions) end(w http.ResponseWriter, r *http.Request) (was bool) {
	cookies := r.CookiesNamed(s.name(r))
	if len(cookies) == 0 {
		return false
	}
	s.mu.Lock()
	for _, cookie := range cookies {
		hash := sha256.Sum256([]byte(cookie.Value))
		was = was || s.all[hash] != nil
		delete(s.all, hash)
	}
	s.mu.Unlock()
	s.set(w, r, "", -1)
	return was
}

// name returns the name of the cookie. Over TLS it has a prefix, so that no other host of the site, and no
// request without TLS, can put a cookie in its place.
func (s *sessions) name(r *http.Request) string {
	switch {
	case !s.options.secure(r):
		return s.cookie
	case s.options.atRoot(r):
		return "__Host-" + s.cookie
	}
	return "__Secure-" + s.cookie
}

func (s *sessions) set(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	cookie := &http.Cookie{ //nolint:gosec // Secure where there is TLS: on the loopback address there is none
		Name: s.name(r), Value: value, MaxAge: maxAge,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: s.options.secure(r),
	}
	if s.options.atRoot(r) {
		cookie.Path = "/" // which __Host- requires
	} // else the browser takes the path of the page, which this handler does not know
	http.SetCookie(w, cookie)
}

// secure reports whether the browser speaks TLS.
func (o *Options) secure(r *http.Request) bool { return o.SecureCookie || r.TLS != nil }

// atRoot reports whether the console has its host for itself, as far as is known: nothing stands before its
// own paths.
func (o *Options) atRoot(r *http.Request) bool {
	if o.Path != "" {
		return o.Path == "/"
	}
	asked, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && asked.Path == r.URL.Path
}

// has reports whether the request comes from a browser that is signed in, and notes its use.
func (s *sessions) has(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, one := s.of(r)
	if one != nil {
		one.Used, one.UsedFrom = s.now(), s.options.client(r)
	}
	return one != nil
}

// of returns the session of a request; nil if it has none.
func (s *sessions) of(r *http.Request) (hash [sha256.Size]byte, one *session) {
	for _, cookie := range r.CookiesNamed(s.name(r)) {
		hash = sha256.Sum256([]byte(cookie.Value))
		if one = s.all[hash]; one != nil && !one.over(s.now()) {
			return hash, one
		}
	}
	return hash, nil
}

// list returns the sessions of the person who makes a request: first the request's own, then the last used.
// Where people have no names, all sessions are theirs.
func (s *sessions) list(r *http.Request) (own session, others []session) {
	person, now := s.options.person(r), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, this := s.of(r)
	for _, one := range s.all {
		if one != this && one.Name == person && !one.over(now) {
			others = append(others, *one)
		}
	}
	slices.SortFunc(others, func(a, b session) int {
		if c := b.Used.Compare(a.Used); c != 0 {
			return c
		}
		return strings.Compare(a.Ref, b.Ref)
	})
	if this != nil {
		own = *this
	}
	return own, others
}

// endOthers ends the sessions of the person who makes a request, but not the request's own: the one with this
// reference, or all of them. It returns how many there were.
func (s *sessions) endOthers(r *http.Request, ref string) (ended int) {
	person, now := s.options.person(r), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	this, _ := s.of(r)
	for hash, one := range s.all {
		if hash == this || one.Name != person || ref != "" && ref != one.Ref {
			continue
		}
		delete(s.all, hash)
		if !one.over(now) {
			ended++
		}
	}
	return ended
}

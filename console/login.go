package console

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// signedIn refuses requests without a session.
func (c *console[Tx]) signedIn(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.options.BehindOwnAuthentication && !c.sessions.has(r) {
			c.login(w, r, http.StatusUnauthorized, "")
			return
		}
		h(w, r)
	}
}

// mayWrite reports whether the person who makes a request may change anything.
func (c *console[Tx]) mayWrite(r *http.Request) bool {
	return c.options.Write && (c.options.MayWrite == nil || c.options.MayWrite(r))
}

// writing refuses every request in a read-only console.
func (c *console[Tx]) writing(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.mayWrite(r) {
			c.refused(r, "this person or console may only look")
			c.fail(w, r, http.StatusForbidden, "This console only shows: it was started without leave to change anything, or you have none.")
			return
		}
		if err := r.ParseForm(); err != nil {
			c.fail(w, r, http.StatusBadRequest, "The form is too long, or no form.")
			return
		}
		h(w, r)
	}
}

func (c *console[Tx]) login(w http.ResponseWriter, r *http.Request, status int, problem string) {
	c.render(w, r, status, "login", page{Title: "Sign in", Problem: problem, SignedOut: true})
}

func (c *console[Tx]) postLogin(w http.ResponseWriter, r *http.Request) {
	if c.options.BehindOwnAuthentication {
		redirect(w, ".")
		return
	}
	from := c.client(r)
	if wait := c.tries.take(from); wait > 0 {
		seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
		w.Header().Set("Retry-After", seconds)
		c.login(w, r, http.StatusTooManyRequests, "Too many wrong tokens came from your address. Try again in "+seconds+" s.")
		return
	}
	if err := r.ParseForm(); err != nil || !c.sessions.is(r.PostForm.Get("token")) {
		c.options.Log.WarnContext(r.Context(), "holdfast console: a wrong token", "from", from)
		c.login(w, r, http.StatusUnauthorized, "That is not the token.")
		return
	}
	c.tries.right(from)
	c.options.Log.InfoContext(r.Context(), "holdfast console: signed in", "from", from)
	c.sessions.begin(w, r)
	redirect(w, ".")
}

func (c *console[Tx]) client(r *http.Request) string { return c.options.client(r) }

// client returns the address by which wrong tokens are counted.
func (o *Options) client(r *http.Request) string {
	if o.ClientAddr != nil {
		return o.ClientAddr(r)
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// person returns the authenticated name of the person who makes a request; "" if people have none.
func (o *Options) person(r *http.Request) string {
	if o.Actor == nil {
		return ""
	}
	return o.Actor(r)
}

func (c *console[Tx]) postLogout(w http.ResponseWriter, r *http.Request) {
	if c.sessions.end(w, r) {
		c.options.Log.InfoContext(r.Context(), "holdfast console: signed out", "from", c.client(r))
	}
	redirect(w, ".")
}

// redirect is relative to the page, because http.Redirect would leave the prefix at which the
// console is mounted.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// Bounds that limit guessing of the token.
const (
	triesPerHost = 10
	triesWindow  = time.Minute
	triesHosts   = 10000 // then the one that began first is forgotten
)

// limiter counts wrong tokens of each address in a window of time.
type limiter struct {
	mu    sync.Mutex
	now   func() time.Time
	tries map[string]*tries
}

type tries struct {
	since time.Time
	count int
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, tries: map[string]*tries{}}
}

// take counts a try as wrong before it is judged, so that tries at the same moment count, too. Or it
// returns how long the address must wait before the next one.
func (l *limiter) take(from string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, now := slot(from), l.now()
	t := l.tries[from]
	if t == nil || now.Sub(t.since) >= triesWindow {
		l.makeRoom()
		t = &tries{since: now}
		l.tries[from] = t
	}
	if t.count >= triesPerHost {
		return triesWindow - now.Sub(t.since)
	}
	t.count++
	return 0
}

// makeRoom forgets the address that began first, if there are too many. To guess, a client with as many
// addresses as that gains nothing: the token is random.
func (l *limiter) makeRoom() {
	if len(l.tries) < triesHosts {
		return
	}
	first := ""
	for from, t := range l.tries {
		if first == "" || t.since.Before(l.tries[first].since) {
			first = from
		}
	}
	delete(l.tries, first)
}

// right takes back the count of a try with the right token.
func (l *limiter) right(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tries[slot(from)]; t != nil && t.count > 0 {
		t.count--
	}
}

// slot returns what addresses are counted together: an IPv6 client has a network of them.
func slot(from string) string {
	if a, err := netip.ParseAddr(from); err == nil && a.Is6() && !a.Is4In6() {
		if p, err := a.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return from
}

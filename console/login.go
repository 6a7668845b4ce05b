package console

import (
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// signedIn refuses requests without a session.
func (c *console[Tx]) signedIn(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.options.BehindOwnAuthentication && !c.session.has(r, time.Now()) {
			c.login(w, r, http.StatusUnauthorized, "")
			return
		}
		h(w, r)
	}
}

// writing refuses every request in a read-only console.
func (c *console[Tx]) writing(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.options.Write {
			c.fail(w, r, http.StatusForbidden, "This console only shows: it was started without leave to change anything.")
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
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if wait := c.tries.wait(host); wait > 0 {
		seconds := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
		w.Header().Set("Retry-After", seconds)
		c.login(w, r, http.StatusTooManyRequests, "Too many wrong tokens came from your address. Try again in "+seconds+" s.")
		return
	}
	if err := r.ParseForm(); err != nil || !c.session.is(r.PostForm.Get("token")) {
		c.tries.wrong(host)
		c.options.Log.WarnContext(r.Context(), "holdfast console: a wrong token", "from", host)
		c.login(w, r, http.StatusUnauthorized, "That is not the token.")
		return
	}
	c.session.begin(w, r)
	redirect(w, ".")
}

func (c *console[Tx]) postLogout(w http.ResponseWriter, r *http.Request) {
	c.session.end(w, r)
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
	triesHosts   = 1000 // all further hosts share one count
)

// limiter counts wrong tokens in a window of time.
type limiter struct {
	mu    sync.Mutex
	now   func() time.Time
	since time.Time
	count map[string]int
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, count: map[string]int{}}
}

// wait returns how long a host must wait before the next try.
func (l *limiter) wait(host string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := triesWindow - l.now().Sub(l.since)
	if left <= 0 || l.count[l.slot(host)] < triesPerHost {
		return 0
	}
	return left
}

func (l *limiter) wrong(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now().Sub(l.since) >= triesWindow {
		clear(l.count)
		l.since = l.now()
	}
	l.count[l.slot(host)]++
}

func (l *limiter) slot(host string) string {
	if _, known := l.count[host]; !known && len(l.count) >= triesHosts {
		return ""
	}
	return host
}

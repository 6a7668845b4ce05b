package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/console"
)

// proxy is a proxy in front of the console that knows who its users are: one of OpenID Connect, for
// instance. It shows the console's token, so that no other program can name a person.
type proxy struct {
	user, groups string // headers: the person's name, and their groups
	writers      string // the group that may change anything; "" is everybody
}

// configure makes the console ask the proxy instead of the person.
func (p *proxy) configure(o *console.Options) (wrap func(http.Handler) http.Handler, err error) {
	switch {
	case p.user == "" && (p.groups != "" || p.writers != ""):
		return nil, usage("--groups-header and --write-group go with --user-header")
	case (p.groups == "") != (p.writers == ""):
		return nil, usage("--groups-header and --write-group go together")
	case o.FourEyes && (p.user == "" || !o.Write):
		return nil, usage("--four-eyes goes with --write and --user-header: one person could type two names")
	case p.user == "":
		return func(h http.Handler) http.Handler { return h }, nil
	}
	token := o.Token
	o.Token, o.BehindOwnAuthentication = "", true
	o.Actor = func(r *http.Request) string { return r.Header.Get(p.user) }
	if p.writers != "" {
		o.MayWrite = func(r *http.Request) bool {
			return slices.ContainsFunc(strings.Split(r.Header.Get(p.groups), ","), func(g string) bool { return strings.TrimSpace(g) == p.writers })
		}
	}
	return func(h http.Handler) http.Handler { return p.authenticated(token, h) }, nil
}

// authenticated refuses what does not come from the proxy, or names no person. A header that comes twice
// may be one of the client's.
func (p *proxy) authenticated(token string, h http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		name := r.Header.Values(p.user)
		switch {
		case subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			http.Error(w, "The proxy in front of the console must send its token: Authorization: Bearer, and what "+tokenVariable+" has.", http.StatusUnauthorized)
		case len(name) != 1 || name[0] == "" || len(name[0]) > 255 || p.groups != "" && len(r.Header.Values(p.groups)) > 1:
			http.Error(w, "The proxy in front of the console must name the person once, in "+p.user+".", http.StatusUnauthorized)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

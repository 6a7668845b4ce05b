package console

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/display"
	"github.com/holdfast-go/holdfast/internal/token"
	"github.com/holdfast-go/holdfast/sqllock"
)

const (
	// MinToken is the shortest token, in bytes.
	MinToken = token.Min
	// AnyHost in Options.Hosts accepts requests for every host.
	AnyHost = "*"
	// SessionLife is how long a browser stays signed in, and SessionIdle how long without a request. The
	// live parts of a page that is in view count as requests.
	SessionLife = 12 * time.Hour
	SessionIdle = 30 * time.Minute
	// StreamLife is how long one answer keeps a page up to date, by server-sent events.
	StreamLife = 20 * time.Second

	queryTimeout = 10 * time.Second // for all reads of one page
	maxForm      = 64 << 10         // bytes of a form
)

// Options configures a console.
type Options struct {
	// Token is the text to type to sign in, at least MinToken bytes, from a random source: rand.Text(). New
	// refuses one that a person plainly chose. Required, unless BehindOwnAuthentication. Sessions are in
	// the memory of this handler: they end with it, when the browser signs out or another one ends them on
	// the page of sessions, after SessionLife, and after SessionIdle without a request.
	Token string
	// BehindOwnAuthentication disables the token: every client that reaches the console sees and,
	// with Write, can change everything in it. Set it only if the program authenticates each
	// client before it calls the handler.
	BehindOwnAuthentication bool
	// Actor returns the name of the person who makes a request, to record with interventions: 1 to
	// 255 bytes. Default: the person types a name.
	Actor func(r *http.Request) string
	// Write allows resolving operations and taking locks away. Default: the console is read-only,
	// and refuses every POST except signing in and out, and ending sessions.
	Write bool
	// MayWrite narrows Write to the persons who may: it reports whether the one who makes a request may
	// change anything. Default: everybody who sees the console.
	MayWrite func(r *http.Request) bool
	// FourEyes makes one person propose and another one confirm: resolving an operation and taking a lock
	// away are then only proposed, for 24 h. It requires Actor, with names that are
	// authenticated: one person could type two. Default: one person does it.
	FourEyes bool
	// Hosts are the names, without a port, by which browsers reach the console: it answers requests
	// for others with 421, so that no page of another site reads it under a name that leads here (DNS
	// rebinding). AnyHost accepts every name: for a program that checks the name itself. Default: the
	// names of the loopback address.
	Hosts []string
	// ClientAddr returns the address of the client behind a proxy, by which wrong tokens are counted. It
	// must not trust a header that clients can send. Default: the peer of the connection.
	ClientAddr func(r *http.Request) string
	// SecureCookie marks the session's cookie Secure if a proxy in front of the program speaks TLS
	// instead of the program itself.
	SecureCookie bool
	// Path is the path below which browsers reach the console, from a slash to a slash, if a proxy takes a
	// part of it away: "/" if there is none. At "/" with TLS the cookie's name begins with __Host-, below
	// another path with __Secure-. Default: what the program's own http.StripPrefix takes away.
	Path string
	// Store holds the options of the program's idempotency store: its Namespace, and its Codec and
	// FormerCodecs if it has them.
	Store idempotency.Options
	// Ending, closed when the program ends, ends the streams of pages that are open, so that
	// http.Server.Shutdown does not wait for them. Default: each ends within StreamLife, and the
	// browser asks for the next.
	Ending <-chan struct{}
	// Log logs errors of the database, sign-ins and sign-outs, wrong tokens, refused requests and
	// interventions, without keys. Default: no logging.
	Log *slog.Logger
}

// console is the handler's state.
type console[Tx any] struct {
	options  Options
	db       *holdfast.DB[Tx]
	sessions *sessions
	tries    *limiter
	locks    *sqllock.Locker[Tx]
	ops      *operators.Operators[Tx]
	streams  atomic.Int64 // that are open
}

// New returns the handler and checks that the tables exist. The handler is safe for concurrent use
// and does not need to be closed. Mount it with http.StripPrefix, below a path that ends with a
// slash.
//
// Errors: [holdfast.ErrInvalid], [holdfast.ErrSchema] with the command to run, errors of the
// driver.
func New[Tx any](ctx context.Context, db *holdfast.DB[Tx], o Options) (http.Handler, error) {
	switch {
	case db == nil:
		return nil, invalid("db", "is nil")
	case o.BehindOwnAuthentication && o.Token != "":
		return nil, invalid("Options.Token", "and BehindOwnAuthentication exclude each other: set one")
	case o.Path != "" && (o.Path[0] != '/' || o.Path[len(o.Path)-1] != '/'):
		return nil, invalid("Options.Path", "does not begin and end with a slash")
	}
	if problem := token.Problem(o.Token); problem != "" && !o.BehindOwnAuthentication {
		return nil, invalid("Options.Token", problem+": take one from rand.Text of crypto/rand, or let holdfast console generate it")
	}
	if o.FourEyes && o.Actor == nil {
		return nil, invalid("Options.FourEyes", "needs Options.Actor: one person could type two names")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Hosts) == 0 {
		o.Hosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	db = access.WithOwners(db, core.AnyOwner) // other programs may share the tables
	locks, err := sqllock.New(ctx, db, sqllock.Options{Holder: "console"})
	if err != nil {
		return nil, err
	}
	store, err := idempotency.New(ctx, db, o.Store)
	if err != nil {
		return nil, err
	}
	if o.BehindOwnAuthentication {
		o.Token = rand.Text()
	}
	c := &console[Tx]{
		options: o, db: db, sessions: newSessions(o.Token, &o, time.Now), tries: newLimiter(time.Now), locks: locks, ops: operators.New(store),
	}
	return c.handler(), nil
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: "console: " + field, Problem: problem}
}

// handler returns all routes, each with its protection.
func (c *console[Tx]) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /style.css", asset("static/style.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /script.js", asset("static/script.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("POST /login", c.postLogin)
	mux.HandleFunc("POST /logout", c.postLogout)

	if !c.options.BehindOwnAuthentication {
		mux.Handle("GET /sessions", c.signedIn(c.live(10*time.Second, c.getSessions)))
		mux.Handle("POST /end-session", c.signedIn(c.postEndSession))
		mux.Handle("POST /end-sessions", c.signedIn(c.postEndSessions))
	}

	mux.Handle("GET /{$}", c.signedIn(c.live(5*time.Second, c.getOverview)))
	mux.Handle("GET /locks", c.signedIn(c.live(2*time.Second, c.getLocks)))
	mux.Handle("GET /operations", c.signedIn(c.live(5*time.Second, c.getOperations)))
	mux.Handle("GET /operation", c.signedIn(c.live(5*time.Second, c.getOperation)))
	mux.Handle("GET /reaper", c.signedIn(c.live(10*time.Second, c.getReaper)))
	mux.Handle("GET /proposals", c.signedIn(c.live(5*time.Second, c.getProposals)))
	mux.Handle("GET /proposal", c.signedIn(c.getProposal))
	mux.Handle("POST /confirm", c.signedIn(c.writing(c.postConfirm)))
	mux.Handle("POST /confirm-release", c.signedIn(c.writing(c.postConfirmRelease)))
	mux.Handle("POST /release", c.signedIn(c.writing(c.postRelease)))
	mux.Handle("POST /confirm-resolve", c.signedIn(c.writing(c.postConfirmResolve)))
	mux.Handle("POST /resolve", c.signedIn(c.writing(c.postResolve)))
	mux.Handle("POST /", c.signedIn(c.writing(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, http.StatusNotFound, "There is no such page.")
	})))
	mux.Handle("GET /", c.signedIn(func(w http.ResponseWriter, r *http.Request) {
		c.fail(w, r, http.StatusNotFound, "There is no such page.")
	}))

	own := http.NewCrossOriginProtection()
	own.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refused(r, "it came from another site")
		c.fail(w, r, http.StatusForbidden, "The request came from another site and was refused.")
	}))
	return headers(c.known(own.Handler(bounded(mux))))
}

// refused logs a request that was not allowed.
func (c *console[Tx]) refused(r *http.Request, why string) {
	c.options.Log.WarnContext(r.Context(), "holdfast console: refused", "why", why, "path", display.Text(r.URL.Path), "from", c.client(r))
}

// known refuses requests for another host than the console's.
func (c *console[Tx]) known(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, err := net.SplitHostPort(r.Host)
		if err != nil { // it has no port
			name = strings.Trim(r.Host, "[]")
		}
		if !slices.ContainsFunc(c.options.Hosts, func(host string) bool { return host == AnyHost || strings.EqualFold(host, name) }) {
			c.options.Log.WarnContext(r.Context(), "holdfast console: a request for another host", "host", display.Text(r.Host))
			http.Error(w, "This console is not reached by this name. If it should be: Options.Hosts, or --host of holdfast console.", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// bounded ends requests that take too long, and refuses forms that are too long.
func bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wantsEvents(r) { // each of its reads is bounded
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
		defer cancel()
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// headers forbids every browser feature that the page does not need.
func headers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		set := w.Header().Set
		set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		set("X-Content-Type-Options", "nosniff")
		set("X-Frame-Options", "DENY")
		set("Referrer-Policy", "no-referrer")
		set("Cross-Origin-Opener-Policy", "same-origin")
		set("Cross-Origin-Resource-Policy", "same-origin")
		set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

// failed answers with an error of the database or of an argument.
func (c *console[Tx]) failed(w http.ResponseWriter, r *http.Request, err error) {
	var input *holdfast.InputError
	switch {
	case errors.Is(err, staged.ErrNotFound):
		c.fail(w, r, http.StatusNotFound, "There is no such operation.")
	case errors.As(err, &input):
		c.fail(w, r, http.StatusBadRequest, input.Field+" "+input.Problem)
	case errors.Is(err, context.DeadlineExceeded):
		c.fail(w, r, http.StatusServiceUnavailable, "The database took longer than "+queryTimeout.String()+". Ask for less: name an owner, an operation or the beginning of a key.")
	case errors.Is(err, holdfast.ErrUnknown):
		c.fail(w, r, http.StatusServiceUnavailable, "The connection broke while this was being committed: look whether it was done before you do it again.")
	case errors.Is(err, holdfast.ErrRetry):
		c.fail(w, r, http.StatusConflict, "A transaction that is under way holds the row. Nothing was changed: try again.")
	default:
		c.options.Log.ErrorContext(r.Context(), "holdfast console: the database's error", "path", r.URL.Path, "error", err)
		c.fail(w, r, http.StatusInternalServerError, "The database answered with an error, which is in the program's log.")
	}
}

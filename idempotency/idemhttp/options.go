package idemhttp

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/idempotency/internal/wire"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Defaults of Options.
const (
	defaultMaxKey  = 255     // bytes
	defaultMaxBody = 1 << 20 // bytes

	defaultMaxHeld = 256 << 20 // bytes

	defaultMaxStartWait = 30 * time.Second
)

// Options configures a Middleware. Owner is required, unless the DB is SingleOwner; the zero
// value of any other field is its default.
type Options struct {
	// Owner returns the owner of a request (the tenant, merchant or account whose operation it
	// is): a stable id that the service has authenticated, never a field that the client fills
	// in. Required, unless the DB is SingleOwner. An error or an empty id is answered 403. It must not read the body.
	Owner func(r *http.Request) (string, error)
	// Methods lists the methods that need a key. All others pass through, without a transaction.
	// Default: POST and PATCH.
	Methods []string

	// Key derives the key from the request instead of reading the header, for requests that carry
	// their own number (see idempotency.KeyOf). To derive only the keys that clients do not send, begin
	// with idemclient.ParseKey, and go on after idemclient.ErrKeyMissing. An error is answered 400, with
	// its text; one of ParseKey as if the header had been read.
	Key func(r *http.Request, body []byte) (string, error)
	// Unkeyed says what becomes of a request without a key. Default: RefuseUnkeyed.
	Unkeyed Unkeyed
	// MaxKey bounds the key in bytes. Default: 255; 8 to idempotency.MaxKey.
	MaxKey int
	// MaxBody bounds the request's body in bytes; a larger body is answered 413. Default: 1 MiB; 1 KiB to 1 GiB.
	MaxBody int64
	// MaxHeld bounds the bytes of the bodies that all requests hold at once: what was read of the
	// requests, and what their handlers have written. A request beyond it is answered 503
	// ProblemBusy with Retry-After; its handler did not run, or is rolled back. One request holds at
	// most MaxBody and the store's MaxResult, and about twice that while a buffer grows or the response
	// is encoded. 1 KiB to 1 TiB. Default: 256 MiB, so that 128 requests of the largest size, or 250,000
	// of 1 KiB, are served at once.
	MaxHeld int64
	// Fingerprint returns the bytes that identify the request behind the key. An error is answered
	// 400, with its text. Default: method, path, query and body. What a client makes anew when it sends
	// the same thing again does not count: the order of the parameters of a query or a form, how a JSON
	// body is written (see idempotency.Canonical), the boundary of a multipart form, the time in a gzip
	// header. Any other body counts byte for byte, and so does one of more than MaxBody without its
	// compression.
	Fingerprint func(r *http.Request, body []byte) ([]byte, error)
	// OnlyFields and IgnoreFields say which fields of a JSON body count for the default Fingerprint, as
	// JSON pointers (RFC 6901) such as "/client/version": these only, or all but these. A retry that
	// differs elsewhere gets the first response, so whatever decides what is done must count. If a body
	// has none of OnlyFields, or one in other letters ("Amount" for "/amount", which Go's encoding/json takes for
	// it), all of it counts, and so does any body that is compressed or no JSON.
	OnlyFields, IgnoreFields []string

	// Similar says which requests with different keys are similar, for example by
	// order and amount: see idempotency.Similar. Such a request is answered 409 with the type
	// ProblemSimilar and a token in Idempotency-Confirm. The client that sends it again
	// with this header confirms. Wrap sets Confirm; leave it empty. Nil from the function is none.
	// An error is answered 400, with its text. Default: keys alone tell intents apart.
	Similar func(r *http.Request, body []byte) (*idempotency.Similar, error)

	// Decide chooses, by the status of the response, whether the handler's work is committed.
	// Default: DefaultDecision.
	Decide func(status int) Decision
	// Declined is the decision on 402, a declined payment. It depends on what the clients' keys name:
	//   - Reject: a client takes a new key after a decline. The stored decline answers a late duplicate
	//     of the request that was declined, which would otherwise pay beside the new one.
	//   - Discard: the key is the order's, and the client sends it again, with another card perhaps. A
	//     stored decline would block the order for good.
	// Leave it empty if Decide is set. Default: Reject.
	Declined Decision
	// Headers lists response header fields to replay, in addition to DefaultHeaders. Set-Cookie
	// and fields of the connection are refused.
	Headers []string

	// Wait bounds the wait for a request in progress with the same key: 1 ms to 366 days.
	// [holdfast.NoWait] answers 409 at once. Default: the store's Wait.
	Wait time.Duration

	// StartWait is how long a request waits for the end of the staged operation that its handler
	// starts (see Accept), without a connection. Default: it does not wait. MaxStartWait bounds
	// what a client may ask for with Prefer: wait=N. Default: 30 s. Both: 1 ms to 24 h.
	StartWait, MaxStartWait time.Duration

	// RequestID returns the id of a request, or of its trace, which is kept with what it executes
	// (see holdfast.WithRequestID); a replay names it in Idempotency-Original-Request. At most 255
	// printable ASCII characters; anything else counts as none. Default: the id in the request's
	// context, or else its header X-Request-Id.
	RequestID func(r *http.Request) string

	// Documentation is the address of the service's own documentation: which operations need a
	// key, and how long a key is valid (the IETF draft requires that it is published). If set,
	// errors carry it as Link, describedby.
	Documentation string
	// ProblemBase begins the types of problems (RFC 9457), which then are the service's own: with
	// "https://api.example.com/problems/" the type of ProblemMismatch is
	// https://api.example.com/problems/mismatch. An absolute URI, or a path of the service; it ends
	// with / # : or =. Default: "/problems/".
	ProblemBase string
	// WriteProblem writes an error of the middleware. Retry-After is set already. Default: writes
	// application/problem+json.
	WriteProblem func(w http.ResponseWriter, r *http.Request, p Problem)
	// Logger logs the errors behind responses 500 and 503. Default: slog.Default().
	Logger *slog.Logger
}

// Unkeyed says what becomes of a request without a key.
type Unkeyed int

// What becomes of a request without a key.
const (
	// RefuseUnkeyed answers 400 ProblemKeyMissing.
	RefuseUnkeyed Unkeyed = iota
	// ServeUnkeyed runs the handler in a transaction, without a record: a request that is sent twice is
	// executed twice. The other promises of the middleware hold: nothing is sent before COMMIT, and the
	// handler's work is committed as Options.Decide says. A malformed key is refused.
	ServeUnkeyed
	// ReportUnkeyed is ServeUnkeyed for malformed keys too, and tells a tracer of each request that
	// RefuseUnkeyed would refuse: the event "http.unkeyed", with the outcome "missing" or "malformed". It
	// shows which clients of an existing API send no keys yet, before they are refused.
	ReportUnkeyed
)

// Decision says whether a handler's work is committed and its response stored.
type Decision int

// The decisions on a handler's work.
const (
	// Commit commits the handler's writes with its response, which is replayed.
	Commit Decision = iota + 1
	// Reject rolls the handler's writes back and stores its response as final. The response is
	// replayed.
	Reject
	// Discard rolls back and stores nothing. The response is sent, the key is free, and the next
	// request with it runs the handler.
	Discard
)

// DefaultDecision returns Commit for 2xx and 3xx, Discard for 5xx, and Reject for most 4xx. A
// refusal is final, because a delayed duplicate must not execute a request that its client knows
// to be refused. It stays final for idempotency.Options.RejectionTTL, by default 30 days: after that the
// key may execute. It returns Discard for statuses that do not settle a request, so that a corrected or
// later request with the same key runs: those that mean that it was not processed (400, 401, 405,
// 407, 408, 411, 413 to 415, 417, 421, 425, 426, 428, 429 and 431), and those about the moment (409,
// 412, 423 and 424). For 402 see Options.Declined.
func DefaultDecision(status int) Decision {
	switch {
	case status >= 500, slices.Contains(wire.NotFinal, status):
		return Discard
	case status < 400:
		return Commit
	}
	return Reject
}

// DefaultHeaders returns the response header fields that are replayed.
func DefaultHeaders() []string {
	return []string{
		"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location",
		"Content-Type", "Etag", "Last-Modified", "Link", "Location", "Vary",
	}
}

// notReplayed lists the header fields of the connection (RFC 9110, section 7.6.1), of the message,
// and those that grant access.
var notReplayed = []string{
	"Connection", "Content-Length", "Date", "Idempotency-Confirm", "Idempotency-Original-Request", "Idempotent-Replayed", "Keep-Alive", "Proxy-Authenticate",
	"Proxy-Connection", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate",
}

func (o *Options) withDefaults(singleOwner bool) error {
	if err := o.checkChoices(); err != nil {
		return err
	}
	pick, err := o.picker()
	if err != nil {
		return err
	}
	o.setDefaults()
	if o.Fingerprint == nil {
		o.Fingerprint = content{o.MaxBody, pick}.fingerprint()
	}
	switch {
	case o.Owner == nil && !singleOwner:
		return invalid("Options.Owner", "is missing: say whose request it is, or open the DB as SingleOwner")
	case o.Owner != nil && singleOwner:
		return invalid("Options.Owner", "is given, and the DB is SingleOwner: leave one of them out")
	}
	if err := cmp.Or(
		options.Size{Least: 8, Most: idempotency.MaxKey, Unit: "bytes", Zero: "the default"}.Check("Options.MaxKey", int64(o.MaxKey)),
		options.Bytes.Check("Options.MaxBody", o.MaxBody),
		options.Bytes.UpTo(1<<40).Check("Options.MaxHeld", o.MaxHeld),
		once.CheckWait("Options.Wait", "the store's Wait", o.Wait),
		options.Wait.Or("no wait").UpTo(24*time.Hour).Check("Options.StartWait", o.StartWait),
		options.Wait.UpTo(24*time.Hour).Check("Options.MaxStartWait", o.MaxStartWait),
	); err != nil {
		return err
	}
	for _, method := range o.Methods {
		if method == "" || strings.ToUpper(method) != method {
			return invalid("Options.Methods", fmt.Sprintf("%q is not a method: they are in upper case", method))
		}
		if slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodConnect}, method) {
			return invalid("Options.Methods", method+" changes nothing, so it needs no key")
		}
	}
	if err := o.setProblemBase(); err != nil {
		return err
	}
	if o.Documentation != "" {
		u, err := url.Parse(o.Documentation)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.ContainsAny(o.Documentation, "<> \"\\") {
			return invalid("Options.Documentation", fmt.Sprintf("%.100q is no http(s) address", o.Documentation))
		}
		write, link := o.WriteProblem, "<"+o.Documentation+`>; rel="describedby"; type="text/html"`
		o.WriteProblem = func(w http.ResponseWriter, r *http.Request, p Problem) {
			w.Header().Add("Link", link)
			write(w, r, p)
		}
	}
	for i, name := range o.Headers {
		name = http.CanonicalHeaderKey(name)
		if name == "" || slices.Contains(notReplayed, name) {
			return invalid("Options.Headers", fmt.Sprintf("%q must not be replayed", name))
		}
		o.Headers[i] = name
	}
	o.Headers = append(o.Headers, DefaultHeaders()...)
	return nil
}

func (o *Options) checkChoices() error {
	switch {
	case o.Unkeyed < RefuseUnkeyed || o.Unkeyed > ReportUnkeyed:
		return invalid("Options.Unkeyed", "is none of RefuseUnkeyed, ServeUnkeyed and ReportUnkeyed")
	case o.Declined != 0 && o.Declined != Reject && o.Declined != Discard:
		return invalid("Options.Declined", "is neither Reject nor Discard")
	case o.Declined != 0 && o.Decide != nil:
		return invalid("Options.Declined", "is given, and Decide decides on 402 too: leave one of them out")
	}
	return nil
}

// setProblemBase makes WriteProblem write types that begin with ProblemBase.
func (o *Options) setProblemBase() error {
	base := o.ProblemBase
	if base == "" || base == defaultProblemBase {
		return nil
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "" && !strings.HasPrefix(base, "/") || !strings.ContainsAny(base[len(base)-1:], "/#:=") || strings.ContainsAny(base, "<> \"\\") {
		return invalid("Options.ProblemBase", fmt.Sprintf("%.100q is no absolute URI and no path that ends with / # : or =", base))
	}
	write := o.WriteProblem
	o.WriteProblem = func(w http.ResponseWriter, r *http.Request, p Problem) {
		if name, ok := strings.CutPrefix(p.Type, defaultProblemBase); ok {
			p.Type = base + name
		}
		write(w, r, p)
	}
	return nil
}

func (o *Options) setDefaults() {
	o.Headers = slices.Clone(o.Headers)
	if o.Methods = slices.Clone(o.Methods); len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if o.MaxKey == 0 {
		o.MaxKey = defaultMaxKey
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.MaxHeld == 0 {
		o.MaxHeld = defaultMaxHeld
	}
	if o.MaxStartWait == 0 {
		o.MaxStartWait = defaultMaxStartWait
	}
	if o.RequestID == nil {
		o.RequestID = func(r *http.Request) string {
			return cmp.Or(holdfast.RequestID(r.Context()), r.Header.Get("X-Request-ID"))
		}
	}
	switch {
	case o.Decide == nil && o.Declined == Discard:
		o.Decide = func(status int) Decision {
			if status == http.StatusPaymentRequired {
				return Discard
			}
			return DefaultDecision(status)
		}
	case o.Decide == nil:
		o.Decide = DefaultDecision
	}
	if o.WriteProblem == nil {
		o.WriteProblem = writeProblem
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

// Operation gives every request the same operation name, such as "refund".
func Operation(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

func invalid(field, problem string) error {
	return &holdfast.InputError{Field: field, Problem: problem}
}

package idemhttp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// Operations are the staged operations of one name: a *staged.Runner. An endpoint that starts none does
// not link package staged.
type Operations[Res any] interface {
	// Name returns the name of the operations.
	Name() string
	// LookupID says what became of the operation with that id: see staged.Runner.
	LookupID(ctx context.Context, id []byte, wait time.Duration) (idempotency.Found[Res], error)
}

// Started is an operation that a handler has started: a *staged.Started.
type Started interface {
	// Address returns the operation's owner, name and ID.
	Address() (owner, name string, id []byte)
}

// OperationStatus is the body of a response about a staged operation that a handler has started: 202
// while it has not ended, 200 with its result. A rejection and an expired result are problems.
type OperationStatus struct {
	// Status is that of idempotency.Found: "in progress", "waiting", "settling", "unknown" or
	// "succeeded".
	Status string `json:"status"`
	// Result is the result of an operation that has succeeded, as JSON.
	Result any `json:"result,omitempty"`
	// Reversed is when it was reported as taken back; left out for never.
	Reversed *time.Time `json:"reversed,omitempty"`
}

// startedRef is a started operation in a record.
type startedRef struct {
	Name string `json:"name"`
	Hash []byte `json:"hash"`
}

// status finds the operations of one name.
type status struct {
	prefix string
	lookup func(ctx context.Context, id []byte, wait time.Duration) (idempotency.Found[any], error)
}

// hashSize is the part of an operation's ID without its owner, in bytes.
const hashSize = 32

const headerApplied = "Preference-Applied"

// Status returns the handler of the addresses that [Accept] gives to operations of runner: GET, for the
// owner of the operation (Options.Owner; other owners get 404). prefix is the path before the
// operation's part, such as "/refunds/status/"; it starts and ends with a slash, and must not change
// while clients keep addresses. Mount the handler there:
//
//	mux.Handle("GET /refunds/status/", status)
//
// The response is an [OperationStatus], 200 or 202; 422 ProblemRejected, 410 ProblemExpired, or 404
// ProblemNotFound. The handler executes nothing. With Prefer: wait=N it waits as Options.MaxStartWait
// allows. Call Status once for each runner whose operations handlers of m start, before m serves.
//
// Errors: [holdfast.ErrInvalid].
func Status[T, Res any](m *Middleware[T], runner Operations[Res], prefix string) (http.Handler, error) {
	if v := reflect.ValueOf(runner); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, invalid("runner", "is nil")
	}
	if !strings.HasPrefix(prefix, "/") || !strings.HasSuffix(prefix, "/") {
		return nil, invalid("prefix", fmt.Sprintf("%.100q does not start and end with a slash", prefix))
	}
	name := runner.Name()
	if m.started[name] != nil {
		return nil, invalid("runner", fmt.Sprintf("Status was called for %q before", name))
	}
	s := &status{prefix, func(ctx context.Context, id []byte, wait time.Duration) (idempotency.Found[any], error) {
		found, err := runner.LookupID(ctx, id, wait)
		return idempotency.Found[any]{State: found.State, Value: found.Value, Rejection: found.Rejection, Reversed: found.Reversed}, err
	}}
	m.started[name] = s
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serveStatus(w, r, s) }), nil
}

func (m *Middleware[T]) serveStatus(w http.ResponseWriter, r *http.Request, s *status) {
	id, ok := m.addressed(w, r, s)
	if !ok {
		return
	}
	wait := m.startWait(w, r, 0)
	found, err := s.lookup(r.Context(), id, wait)
	switch {
	case err != nil:
		m.refuse(w, r, err)
	case found.State == idempotency.StateAbsent:
		m.options.WriteProblem(w, r, notFound())
	default:
		m.tell(w, r, found)
	}
}

// addressed returns the ID of the operation at the request's address. It has answered if ok is false.
func (m *Middleware[T]) addressed(w http.ResponseWriter, r *http.Request, s *status) (id []byte, ok bool) {
	owner, err := m.owner(r)
	if err != nil {
		m.refuse(w, r, err)
		return nil, false
	}
	hash, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(r.URL.Path, s.prefix))
	if err != nil || len(hash) != hashSize {
		m.options.WriteProblem(w, r, notFound())
		return nil, false
	}
	return append(hash, owner...), true
}

// Accept answers for an operation that the handler has started with StartTx: 202, and the Location of its
// status (see [Status]). With Options.StartWait, or Prefer: wait=N (RFC 7240), the middleware waits after
// COMMIT, without a connection, and answers with the result if the operation ends in time. A duplicate
// gets the same 202, or the result once there is one. started must be of the request's owner.
//
// Errors: [holdfast.ErrInvalid] if Status was not called for the operation's runner, or the owner is
// another one.
func Accept(w http.ResponseWriter, r *http.Request, started Started) error {
	state, ok := r.Context().Value(runKey{}).(*run)
	if !ok {
		return invalid("Accept", "needs the request of a wrapped handler")
	}
	owner, name, id := started.Address()
	s := state.statuses[name]
	switch {
	case s == nil:
		return invalid("Accept", fmt.Sprintf("call Status for %q first: it says where the operation's status is", name))
	case owner != state.owner:
		return invalid("Accept", "the operation is of another owner than the request")
	}
	state.started = &startedRef{name, id[:hashSize]}
	w.Header().Set("Location", s.location(state.started.Hash))
	w.Header().Set("Retry-After", retryAfter(nil))
	writeJSON(w, http.StatusAccepted, OperationStatus{Status: idempotency.StateWaiting.String()})
	return nil
}

func (s *status) location(hash []byte) string {
	return s.prefix + base64.RawURLEncoding.EncodeToString(hash)
}

// ended answers with the result of a started operation, if it has ended or ends in the time that
// the request waits. It returns false if it has not answered.
func (m *Middleware[T]) ended(w http.ResponseWriter, r *http.Request, owner string, ref *startedRef, replayed bool) bool {
	s := m.started[ref.Name]
	wait := m.startWait(w, r, m.options.StartWait)
	if s == nil || wait == 0 && !replayed {
		return false // it cannot have ended yet
	}
	found, err := s.lookup(r.Context(), append(slices.Clip(ref.Hash), owner...), wait)
	if err != nil || !found.State.Final() {
		if err != nil && r.Context().Err() == nil {
			m.options.Logger.WarnContext(r.Context(), "status of a started operation is not known", "path", r.URL.Path, "error", err)
		}
		return false
	}
	w.Header().Set("Location", s.location(ref.Hash))
	if replayed {
		w.Header().Set(idemclient.HeaderReplayed, "true")
	}
	m.tell(w, r, found)
	return true
}

// tell answers with what was found.
func (m *Middleware[T]) tell(w http.ResponseWriter, r *http.Request, found idempotency.Found[any]) {
	w.Header().Set("Cache-Control", "no-store")
	body := OperationStatus{Status: found.State.String()}
	if !found.Reversed.IsZero() {
		body.Reversed = &found.Reversed
	}
	switch found.State {
	case idempotency.StateSucceeded:
		body.Result = found.Value
		writeJSON(w, http.StatusOK, body)
	case idempotency.StateRejected:
		m.options.WriteProblem(w, r, rejected(found.Rejection))
	case idempotency.StateSucceededExpired, idempotency.StateRejectedExpired:
		p, _ := problemOf(&idempotency.ExpiredError{Rejected: found.State == idempotency.StateRejectedExpired}, nil)
		m.options.WriteProblem(w, r, p)
	default:
		w.Header().Set("Retry-After", retryAfter(nil))
		writeJSON(w, http.StatusAccepted, body)
	}
}

func writeJSON(w http.ResponseWriter, status int, body OperationStatus) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // results of steps and operations are stored as JSON
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have disconnected
}

// startWait returns how long a request waits for an operation: as it prefers, up to MaxStartWait, or
// the default.
func (m *Middleware[T]) startWait(w http.ResponseWriter, r *http.Request, otherwise time.Duration) time.Duration {
	wait, is := preferredWait(r.Header)
	if !is {
		return otherwise
	}
	wait = min(wait, m.options.MaxStartWait)
	w.Header().Set(headerApplied, "wait="+strconv.Itoa(int(wait/time.Second)))
	return wait
}

// preferredWait reads the preferences wait and respond-async of RFC 7240. The first wait counts;
// respond-async alone is no wait.
func preferredWait(h http.Header) (wait time.Duration, is bool) {
	for _, field := range h["Prefer"] {
		for preference := range strings.SplitSeq(field, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(preference, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				is = true
			case "wait":
				n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 31)
				if err == nil || errors.Is(err, strconv.ErrRange) {
					return time.Duration(n) * time.Second, true
				}
			}
		}
	}
	return 0, is
}

func notFound() Problem {
	return Problem{
		Type: ProblemNotFound, Title: "No such operation", Status: http.StatusNotFound,
		Detail: "There is no operation with this address, or it is not kept any more.",
	}
}

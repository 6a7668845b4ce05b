package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/inside"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
)

// Middleware makes handlers idempotent. It is safe for concurrent use.
type Middleware[T any] struct {
	store     *idempotency.Store[T]
	operation func(r *http.Request) string
	options   Options
	limit     int                // bound of the stored response, in bytes
	started   map[string]*status // see Status
	memory    *memory
	bytewise  bool // the fingerprint is the default one
}

// New makes a middleware on a store. operation returns the operation name of a request, see
// [idempotency.Op].Name: [Operation] gives all requests one name, and your own function can
// distinguish the operations of a router. A key belongs to its operation's name: after a rename, a
// duplicate runs the handler again. So do not build the name from a router's pattern, which
// changes with a parameter's name or a version prefix. At most 128 bytes; an empty name is
// answered 500.
//
// Errors: [holdfast.ErrInvalid], for example if operation is nil, or if Options.Owner is missing
// and the DB is not SingleOwner.
func New[T any](store *idempotency.Store[T], operation func(r *http.Request) string, o Options) (*Middleware[T], error) {
	if store == nil {
		return nil, invalid("store", "is nil")
	}
	if operation == nil {
		return nil, invalid("operation", `is nil: name what the handler does, for example with Operation("refund"), and never change the name`)
	}
	bytewise := o.Fingerprint == nil
	if err := o.withDefaults(store.SingleOwner()); err != nil {
		return nil, err
	}
	return &Middleware[T]{store, operation, o, store.Options().MaxResult, map[string]*status{}, &memory{max: o.MaxHeld}, bytewise}, nil
}

// Wrap makes next idempotent for the methods of Options. next finds its transaction with [Tx] and
// fails with [Fail]. It may run more than once for one request, each time with the whole body and
// a new ResponseWriter, and must have effects in the database only, through its transaction only.
//
// Wrap sends the response of next after the transaction has ended. A panic of next rolls back and
// propagates.
func (m *Middleware[T]) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(m.options.Methods, r.Method) {
			m.serve(w, r, next)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// Handler is Wrap for a function that receives the transaction and returns an error; see [Fail]
// for how errors are handled. Methods that need no key are answered 405.
func (m *Middleware[T]) Handler(fn func(w http.ResponseWriter, r *http.Request, tx T) error) http.Handler {
	return m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, ok := Tx[T](r.Context())
		if !ok {
			w.Header().Set("Allow", strings.Join(m.options.Methods, ", "))
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		if err := fn(w, r, tx); err != nil {
			Fail(r.Context(), err)
		}
	}))
}

func (m *Middleware[T]) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	mine := &share{of: m.memory}
	defer mine.end()
	op, body, err := m.read(w, r, mine)
	if err != nil {
		m.refuse(w, r, err)
		return
	}
	r = m.identified(r)
	var last *outcome // of the run that counts
	work := func(ctx context.Context, tx T) (json.RawMessage, error) {
		now, err := m.run(ctx, tx, r, w.Header(), body, next, op.Owner, mine)
		switch {
		case last == nil || !last.asked:
		case !now.asked && err == nil:
			return nil, &failure{err: errOnce}
		default:
			now.asked = true
		}
		last = now
		return now.kept, err
	}
	var result idempotency.Result[json.RawMessage]
	if op.Key == "" {
		result, err = m.unrecorded(r.Context(), work)
	} else {
		result, err = idempotency.Do(r.Context(), m.store, op, work)
	}
	kept := result.Value
	var rejection *idempotency.Rejection
	if errors.As(err, &rejection) && result.Outcome != 0 {
		kept, err = rejection.Detail, nil
		if kept == nil { // stored by other code than this middleware
			m.options.WriteProblem(w, r, rejected(rejection))
			return
		}
	}
	switch {
	case err == nil && result.Outcome == idempotency.Executed:
		if last.started == nil || !m.ended(w, r, op.Owner, last.started, false) {
			if applied := w.Header().Get(headerApplied); applied != "" {
				last.rec.sent.Set(headerApplied, applied)
			}
			last.rec.send(w)
		}
	case err == nil:
		m.replay(w, r, op.Owner, kept, mine)
	default:
		m.refuse(w, r, err)
	}
}

// replay sends a stored response, or the result of the operation that it was about.
func (m *Middleware[T]) replay(w http.ResponseWriter, r *http.Request, owner string, kept json.RawMessage, mine *share) {
	if !mine.response(len(kept)) {
		m.refuse(w, r, errBusy)
		return
	}
	stored, err := restore(kept)
	if err != nil {
		m.refuse(w, r, err)
		return
	}
	stored.original(w)
	if stored.Started == nil || !m.ended(w, r, owner, stored.Started, true) {
		stored.replay(w)
	}
}

// unrecorded runs the work of a request without a key. It is executed if its response can be sent, refusals too.
func (m *Middleware[T]) unrecorded(ctx context.Context, work func(ctx context.Context, tx T) (json.RawMessage, error)) (executed idempotency.Result[json.RawMessage], err error) {
	err = inside.Of(m.store).DB().InTx(ctx, func(ctx context.Context, tx T) error {
		_, err := work(ctx, tx)
		return err
	})
	if _, decided := err.(*idempotency.Rejection); err != nil && !decided { //nolint:errorlint // the handler's own: an error that wraps one is of a call within
		var failed *failure
		errors.As(err, &failed)
		switch {
		case errors.Is(err, holdfast.ErrUnknown):
			err = unknownUnkeyed(err)
		case lost(err, failed):
			err = &requestError{partly("Look for its effect before you send it again."), err, false}
		}
		return executed, err
	}
	executed.Outcome = idempotency.Executed
	return executed, nil
}

// identified returns r with the id of the request in its context.
func (m *Middleware[T]) identified(r *http.Request) *http.Request {
	id := m.options.RequestID(r)
	if len(id) > maxRequestID || !printable(id) {
		id = ""
	}
	if id == holdfast.RequestID(r.Context()) {
		return r
	}
	return r.WithContext(holdfast.WithRequestID(r.Context(), id))
}

// errOnce detects a handler that did nothing in its second run, so that it does not count as a
// success. gin's Context.Next, for example, runs nothing the second time.
var errOnce = errors.New("idemhttp: the handler was to run again, and did not ask for its transaction as it did before: it is wrapped by a router's middleware that runs it once only; wrap the router, or the handler itself")

// outcome is what one run of the handler has brought.
type outcome struct {
	rec     *recorder       // its response
	kept    json.RawMessage // the same, as the record keeps it
	started *startedRef     // the operation that it has accepted
	asked   bool            // it, or a run before it, has asked for its transaction
}

// run runs the handler once. An error rolls its transaction back; a *idempotency.Rejection is stored.
func (m *Middleware[T]) run(ctx context.Context, tx T, r *http.Request, header http.Header, body []byte, next http.Handler, owner string, mine *share) (*outcome, error) {
	mine.again()
	out, h := &outcome{rec: newRecorder(header, m.limit, mine)}, &held[T]{tx: tx}
	state := &run{statuses: m.started, owner: owner}
	ctx = context.WithValue(context.WithValue(ctx, txKey[T]{}, h), runKey{}, state)
	r = again(ctx, r, body)
	next.ServeHTTP(out.rec, r)
	out.asked = h.asked.Load()
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // the server removes files of the original request only
	}

	var rejection *idempotency.Rejection
	failed := state.failed()
	isRejection := failed != nil && once.Decides(failed, &rejection)
	if failed != nil && !isRejection {
		return out, &failure{err: failed, rec: out.rec}
	}
	if isRejection && !out.rec.refused() {
		if out.rec.status != 0 {
			out.rec = newRecorder(header, m.limit, mine)
		}
		m.options.WriteProblem(out.rec, r, rejected(rejection))
	}
	out.rec.end(m.options.Headers)
	if out.rec.err != nil {
		return out, &failure{err: out.rec.err}
	}
	decision := Reject
	if !isRejection {
		decision = m.options.Decide(out.rec.status)
	}
	if decision != Commit && decision != Reject {
		return out, &failure{rec: out.rec}
	}
	if decision == Commit {
		out.started = state.started // else it is rolled back
	}
	kept, err := keep(out.rec, m.options.Headers, m.limit, out.started, holdfast.RequestID(ctx))
	if err != nil {
		return out, &failure{err: err}
	}
	if decision == Commit {
		out.kept = kept
		return out, nil
	}
	if !isRejection {
		rejection = &idempotency.Rejection{Code: "http", Message: http.StatusText(out.rec.status)}
	}
	return out, &idempotency.Rejection{Code: rejection.Code, Message: rejection.Message, Detail: kept}
}

package idemhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Middleware makes handlers idempotent. It is safe for concurrent use.
type Middleware[T any] struct {
	store   *idempotency.Store[T]
	options Options
	limit   int // of what the record keeps, in bytes
}

// New makes a middleware on a store.
//
// Errors: [holdfast.ErrInvalid], for one when Options.Tenant is missing.
func New[T any](store *idempotency.Store[T], o Options) (*Middleware[T], error) {
	if store == nil {
		return nil, invalid("store", "is nil")
	}
	if err := o.withDefaults(store.Options()); err != nil {
		return nil, err
	}
	return &Middleware[T]{store, o, store.Options().MaxResult}, nil
}

// Wrap makes next idempotent for the methods of Options. next finds its
// transaction with [Tx] and fails with [Fail]. It may run more than once for
// one request, each time with the whole body and a new ResponseWriter, and
// must have effects in the database only, through its transaction only.
//
// What next writes is sent when the transaction has ended. A panic of next
// rolls back and goes on.
func (m *Middleware[T]) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(m.options.Methods, r.Method) {
			m.serve(w, r, next)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// Handler is Wrap for a function that receives the transaction and returns an
// error: see [Fail] for what becomes of it. Methods that need no key are
// answered 405.
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
	op, body, err := m.read(w, r)
	if err != nil {
		m.refuse(w, r, err)
		return
	}
	var last *recorder // what the run that counts wrote
	asked := false     // a run asked for its transaction
	result, err := idempotency.Do(r.Context(), m.store, op, func(ctx context.Context, tx T) (json.RawMessage, error) {
		h := &held[T]{tx: tx}
		rec, kept, err := m.run(ctx, h, r, w.Header(), body, next)
		if asked && !h.asked.Load() && err == nil {
			return nil, &failure{err: errOnce}
		}
		last, asked = rec, asked || h.asked.Load()
		return kept, err
	})
	kept := result.Value
	var rejection *idempotency.Rejection
	if errors.As(err, &rejection) && result.Outcome != 0 {
		kept, err = rejection.Detail, nil
		if kept == nil { // made by something else than this middleware
			m.options.WriteProblem(w, r, rejected(rejection))
			return
		}
	}
	switch {
	case err == nil && result.Outcome == idempotency.Executed:
		last.send(w)
	case err == nil:
		stored, err := restore(kept)
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		stored.replay(w)
	default:
		m.refuse(w, r, err)
	}
}

// errOnce keeps a handler that did nothing from being taken for one that
// succeeded: gin's Context.Next, for one, runs nothing the second time.
var errOnce = errors.New("idemhttp: the handler was to run again, and did not ask for its transaction as it did before: it is wrapped by a router's middleware that runs it once only; wrap the router, or the handler itself")

// run runs the handler once.
func (m *Middleware[T]) run(ctx context.Context, h *held[T], r *http.Request, header http.Header, body []byte, next http.Handler) (*recorder, json.RawMessage, error) {
	rec := newRecorder(header, m.limit)
	state := &run{}
	ctx = context.WithValue(context.WithValue(ctx, txKey[T]{}, h), runKey{}, state)
	r = again(ctx, r, body)
	next.ServeHTTP(rec, r)
	if r.MultipartForm != nil {
		_ = r.MultipartForm.RemoveAll() // the server removes those of its own request only
	}

	var rejection *idempotency.Rejection
	failed := state.failed()
	isRejection := errors.As(failed, &rejection)
	if failed != nil && !isRejection {
		return rec, nil, &failure{err: failed, rec: rec}
	}
	if isRejection && !rec.refused() {
		if rec.status != 0 {
			rec = newRecorder(header, m.limit)
		}
		m.options.WriteProblem(rec, r, rejected(rejection))
	}
	rec.end(m.options.Headers)
	if rec.err != nil {
		return rec, nil, &failure{err: rec.err}
	}
	verdict := Reject
	if !isRejection {
		verdict = m.options.Verdict(rec.status)
	}
	if verdict != Commit && verdict != Reject {
		return rec, nil, &failure{rec: rec}
	}
	kept, err := keep(rec, m.options.Headers, m.limit)
	if err != nil {
		return rec, nil, &failure{err: err}
	}
	if verdict == Commit {
		return rec, kept, nil
	}
	if !isRejection {
		rejection = &idempotency.Rejection{Code: "http", Message: http.StatusText(rec.status)}
	}
	return rec, nil, &idempotency.Rejection{Code: rejection.Code, Message: rejection.Message, Detail: kept}
}

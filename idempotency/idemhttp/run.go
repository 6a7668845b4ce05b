package idemhttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

type (
	txKey[T any] struct{}
	runKey       struct{}
)

// run is one run of a handler.
type run struct {
	mu  sync.Mutex
	err error // what it failed with first
}

func (r *run) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// held is the transaction of a run.
type held[T any] struct {
	tx    T
	asked atomic.Bool
}

// Tx is the transaction of a wrapped handler, found by the context of its
// request; T is the type of the store's transactions, such as *sql.Tx. It is
// false outside of a wrapped handler, for a method that passes through, and
// for another type. The transaction ends with the handler.
func Tx[T any](ctx context.Context) (T, bool) {
	h, ok := ctx.Value(txKey[T]{}).(*held[T])
	if !ok {
		var none T
		return none, false
	}
	h.asked.Store(true)
	return h.tx, true
}

// Fail rolls the handler's writes back, whatever it has written or still
// writes as its response; the first error counts. ctx is the context of the
// request.
//
// An error of [idempotency.Reject] is final: the response is kept and replayed.
// After any other error nothing is kept and the key is free; if the engine asks
// for it (deadlock, serialization failure, a lock that was not to be had), the
// handler runs again, so give Fail the error of the statement. The response is
// the handler's, where its status is 400 or above, and else a problem: 422 with
// the rejection's code and message, or 500.
//
// Fail panics when ctx is not that of a wrapped handler: there is nothing that
// it could roll back.
func Fail(ctx context.Context, err error) {
	state, ok := ctx.Value(runKey{}).(*run)
	switch {
	case !ok:
		panic("idemhttp: Fail needs the context of a wrapped handler's request")
	case err == nil:
		panic("idemhttp: Fail needs an error")
	}
	state.mu.Lock()
	defer state.mu.Unlock()
	if state.err == nil {
		state.err = err
	}
}

// failure is a run that is rolled back and not kept.
type failure struct {
	err error     // nil: the verdict on the response is Discard
	rec *recorder // nil: it cannot be sent
}

func (f *failure) Error() string {
	if f.err == nil {
		return "idemhttp: the response is no verdict: " + http.StatusText(f.rec.status)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// answer is the handler's own response, where it can be sent: one that fails,
// of a handler that failed.
func (f *failure) answer() *recorder {
	if f.rec == nil || f.rec.err != nil || f.err != nil && !f.rec.refused() {
		return nil
	}
	return f.rec
}

// again is r for one run: what a run before it read, parsed or set is not seen.
func again(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	return r
}

package idemhttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/internal/trace"
)

type (
	txKey[T any] struct{}
	runKey       struct{}
)

// run is one run of a handler.
type run struct {
	mu  sync.Mutex
	err error // the first error

	owner    string
	statuses map[string]*status
	started  *startedRef // see Accept
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

// Tx returns the transaction of a wrapped handler from the context of its request; T is the type
// of the store's transactions, such as *sql.Tx. It returns false outside of a wrapped handler, for
// a method that passes through, and for another type. The transaction ends with the handler.
func Tx[T any](ctx context.Context) (T, bool) {
	h, ok := ctx.Value(txKey[T]{}).(*held[T])
	if !ok {
		var none T
		return none, false
	}
	h.asked.Store(true)
	return h.tx, true
}

// Fail rolls the handler's writes back, regardless of the response that the handler writes. Only
// the first error counts. ctx is the context of the request.
//
// An error of [idempotency.Reject] is final: the response is stored and replayed. After any other
// error nothing is stored and the key is free. If the engine asks for it (deadlock, serialization
// failure, a lock that could not be acquired), the handler runs again, so pass the error of the
// statement to Fail. The response is the handler's if its status is 400 or above. Otherwise it is
// a problem: 422 with the rejection's code and message, or 500.
//
// Fail panics if ctx is not the context of a wrapped handler, because there is nothing to roll
// back.
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

// failure is a run that is rolled back and not stored.
type failure struct {
	err error     // nil: the decision on the response is Discard
	rec *recorder // nil: the response cannot be sent
}

func (f *failure) Error() string {
	if f.err == nil {
		return "idemhttp: the response is no decision: " + http.StatusText(f.rec.status)
	}
	return f.err.Error()
}

// TraceOutcome names a response by which the handler refuses a request without storing that, such as
// 400: the service has not failed.
func (f *failure) TraceOutcome() string {
	if f.err == nil && f.rec.status < http.StatusInternalServerError {
		return trace.Discarded
	}
	return ""
}

func (f *failure) Unwrap() error { return f.err }

// answer returns the handler's own response if it can be sent: if the handler did not fail, or if
// the response has an error status.
func (f *failure) answer() *recorder {
	if f.rec == nil || f.rec.err != nil || f.err != nil && !f.rec.refused() {
		return nil
	}
	return f.rec
}

// again returns a copy of r for one run, without what an earlier run has read, parsed or set.
func again(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	return r
}

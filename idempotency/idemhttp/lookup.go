package idemhttp

import (
	"encoding/json"
	"net/http"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// Lookup returns a handler that says what became of the request with a key, and executes nothing: for a
// client that has a key and no longer the request, for its support, and after 503 ProblemUnknown. A request to
// it has the header Idempotency-Key. Mount it where you like:
//
//	mux.Handle("GET /refunds/lookup", m.Lookup("refund"))
//
// The response is the one that a retry would get, replayed: look at Idempotent-Replayed, because its status
// is that of the first response. Otherwise it is a problem: 404 ProblemNotFound for a key that is not
// stored, 409 ProblemInProgress, 503 ProblemUnknown, 410 ProblemExpired. 404 does not mean that nothing will
// be done: a request that is still on its way, or whose transaction others cannot see, may be executed.
// With Prefer: wait=N it waits for the outcome as Options.MaxStartWait allows.
//
// operation is the operation's name (see [New]). If the owner has used the key for one of others, the 404
// names that one in Problem.Operation. The key must be of the request's owner, and no other owner's is found.
func (m *Middleware[T]) Lookup(operation string, others ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.lookup(uncached{w}, r, operation, others)
	})
}

func (m *Middleware[T]) lookup(w http.ResponseWriter, r *http.Request, operation string, others []string) {
	mine := &share{of: m.memory}
	defer mine.end()
	op := idempotency.Op{Name: operation, NoFingerprint: true}
	var err error
	op.Key, err = idemclient.ParseKey(r.Header)
	if err = m.tooLong(op.Key, err); err != nil {
		m.refuse(w, r, malformed(err))
		return
	}
	if op.Owner, err = m.owner(r); err != nil {
		m.refuse(w, r, err)
		return
	}
	op.Wait = m.startWait(w, r, 0)
	found, err := idempotency.Lookup[json.RawMessage](r.Context(), m.store, op)
	if err != nil {
		m.refuse(w, r, err)
		return
	}
	switch found.State {
	case idempotency.StateSucceeded:
		m.replay(w, r, op.Owner, found.Value, mine)
	case idempotency.StateRejected:
		if found.Rejection.Detail == nil { // stored by other code than this middleware
			m.options.WriteProblem(w, r, rejected(found.Rejection))
			return
		}
		m.replay(w, r, op.Owner, found.Rejection.Detail, mine)
	case idempotency.StateSucceededExpired, idempotency.StateRejectedExpired:
		m.refuse(w, r, &idempotency.ExpiredError{Rejected: found.State == idempotency.StateRejectedExpired})
	case idempotency.StateAbsent:
		m.absent(w, r, op, others)
	case idempotency.StateUnknown:
		m.refuse(w, r, idempotency.ErrUnknown)
	default:
		m.refuse(w, r, idempotency.ErrInProgress)
	}
}

// absent answers for a key that is not stored, with the operation for which its owner has used it.
func (m *Middleware[T]) absent(w http.ResponseWriter, r *http.Request, op idempotency.Op, others []string) {
	p := Problem{
		Type: ProblemNotFound, Title: "No such key", Status: http.StatusNotFound,
		Detail: "No response is stored with this Idempotency-Key. A request with it may still be on its way.",
	}
	op.Wait = 0
	for _, op.Name = range others {
		found, err := idempotency.Lookup[json.RawMessage](r.Context(), m.store, op)
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		if found.State != idempotency.StateAbsent {
			p.Operation = op.Name
			p.Detail += " You have used the key for another operation: " + op.Name + "."
			break
		}
	}
	m.options.WriteProblem(w, r, p)
}

// uncached is a ResponseWriter whose responses no cache keeps, also if a stored one says otherwise: a cache does not know that
// they belong to a key.
type uncached struct{ http.ResponseWriter }

func (u uncached) WriteHeader(status int) {
	u.Header().Set("Cache-Control", "no-store")
	u.ResponseWriter.WriteHeader(status)
}

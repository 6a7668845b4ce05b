package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
)

// Cancels are staged operations that can be cancelled: a *staged.Runner.
type Cancels interface {
	// Name returns the name of the operations.
	Name() string
	// CancelID ends the operation with that id, if it has called nothing outside: see staged.Runner.
	CancelID(ctx context.Context, id []byte, reason string) (idempotency.Outcome, error)
}

// cancelReason is why an operation is rejected that its client has cancelled.
const cancelReason = "cancelled by the client"

// Cancel returns the handler of DELETE at the addresses that [Status] serves for runner, for the owner of the
// operation:
//
//	mux.Handle("DELETE /refunds/status/", cancel)
//
// The response is 204 if the operation is cancelled, now or before: it is rejected, and called nothing outside. It is 409
// [ProblemTooLate] if it has ended otherwise, or has begun its call: the address says what became of it. 404 is
// ProblemNotFound. Call Cancel after Status, before m serves.
//
// Errors: [holdfast.ErrInvalid].
func Cancel[T any](m *Middleware[T], runner Cancels) (http.Handler, error) {
	if runner == nil {
		return nil, invalid("runner", "is nil")
	}
	s := m.started[runner.Name()]
	if s == nil {
		return nil, invalid("runner", fmt.Sprintf("call Status for %q first: it says where the operations are", runner.Name()))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := m.addressed(w, r, s)
		if !ok {
			return
		}
		_, err := runner.CancelID(r.Context(), id, cancelReason)
		var late *idempotency.TooLateError
		switch {
		case err == nil:
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
		case errors.As(err, &late):
			m.options.WriteProblem(w, r, Problem{
				Type: ProblemTooLate, Title: "Too late to cancel", Status: http.StatusConflict,
				Detail: "The operation is " + late.State.String() + ", and nothing was changed. Its address says what becomes of it.",
			})
		case errors.Is(err, ledger.ErrNotFound):
			m.options.WriteProblem(w, r, notFound())
		default:
			m.refuse(w, r, err)
		}
	}), nil
}

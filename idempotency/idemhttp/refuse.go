package idemhttp

import (
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
)

// retryAfter returns the value of Retry-After, in seconds.
func retryAfter(err error) string {
	var many *idempotency.TooManyError
	if errors.As(err, &many) {
		return strconv.FormatInt(int64(max(1, math.Ceil(many.RetryAfter.Seconds()))), 10)
	}
	return "1"
}

// refuse answers an error. The database's message is logged, not sent.
func (m *Middleware[T]) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var failed *failure
	errors.As(err, &failed)
	p, again := problemOf(err, failed)
	m.log(r, err, failed, p)
	if failed != nil && failed.answer() != nil && !lost(err, failed) {
		failed.answer().send(w)
		return
	}
	if again {
		w.Header().Set("Retry-After", retryAfter(err))
	}
	if p.Type == ProblemMismatch && m.bytewise {
		p.Detail += mismatchHint(r.Header)
	}
	if p.Earlier != nil {
		w.Header().Set(idemclient.HeaderConfirm, p.Earlier.Confirm)
	}
	m.options.WriteProblem(w, r, p)
}

func (m *Middleware[T]) log(r *http.Request, err error, failed *failure, p Problem) {
	level := slog.LevelError
	switch {
	case failed != nil && failed.err == nil: // the handler's own response, which the handler itself logs
		return
	case p.Type == ProblemOwner, p.Type == ProblemTooMany, p.Type == ProblemBusy:
		level = slog.LevelWarn
	case p.Status < http.StatusInternalServerError:
		return
	case r.Context().Err() != nil: // the client has disconnected
		level = slog.LevelInfo
	}
	m.options.Logger.Log(r.Context(), level, "idempotent request failed",
		"method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
}

// problemOf returns the problem to send. again reports that retrying with the same key is right.
// Errors about keys and records inside an error of the handler concern other keys and are ignored.
func problemOf(err error, failed *failure) (p Problem, again bool) {
	var request *requestError
	var similar *idempotency.SimilarError
	var inner *idempotency.InnerError
	var expired *idempotency.ExpiredError
	switch {
	case errors.As(err, &request):
		return request.problem, request.again
	case errors.Is(err, idempotency.ErrUnknown), errors.As(err, &inner) && errors.Is(inner.Err, idempotency.ErrUnknown):
		return Problem{
			Type: ProblemUnknown, Title: "Outcome is unknown", Status: http.StatusServiceUnavailable,
			Detail: "Nobody knows yet whether this was done. Retry with the same key.",
		}, true
	case errors.Is(err, holdfast.ErrRetry):
		return unavailable(), true
	case errors.Is(err, errBusy):
		return busy(), true
	case lost(err, failed):
		return partly("Ask again with the same key."), false
	case failed != nil:
		return internal(), false
	case errors.Is(err, idempotency.ErrInProgress):
		return Problem{
			Type: ProblemInProgress, Title: "A request with this Idempotency-Key is in progress", Status: http.StatusConflict,
			Detail: "Retry later with the same key.",
		}, true
	case errors.Is(err, idempotency.ErrTooMany):
		return Problem{
			Type: ProblemTooMany, Title: "Too many new Idempotency-Keys", Status: http.StatusTooManyRequests,
			Detail: "This owner has used as many new keys as it may for now, and nothing was done. Retry later with the same key.",
		}, true
	case errors.As(err, &similar):
		return Problem{
			Type: ProblemSimilar, Title: "Similar to an earlier request", Status: http.StatusConflict,
			Detail:  "A similar request with another Idempotency-Key was executed before, and nothing was done for this one. If it is meant, send it again with the header " + idemclient.HeaderConfirm + " of this response.",
			Earlier: &Earlier{At: similar.At, BusinessID: similar.BusinessID, Confirm: similar.Token},
		}, false
	case errors.Is(err, idempotency.ErrMismatch):
		return Problem{
			Type: ProblemMismatch, Title: "Idempotency-Key belongs to another request", Status: http.StatusUnprocessableEntity,
			Detail: "The key was used for another request, which may have been executed, and nothing was done for this one. Use a key of its own for each intent, and look up what became of a key before its intent gets another one.",
		}, false
	case errors.As(err, &expired) && expired.Rejected:
		return Problem{
			Type: ProblemRejected, Title: "Rejected, and the reason is no longer kept", Status: http.StatusUnprocessableEntity,
			Detail: "The request with this key was rejected, and nothing was done for it. The reason is no longer kept.",
		}, false
	case errors.Is(err, idempotency.ErrExpired):
		return Problem{
			Type: ProblemExpired, Title: "Done, and the answer is no longer kept", Status: http.StatusGone,
			Detail: "The request with this key was completed before. It is not done again, and its answer is no longer kept.",
		}, false
	}
	for _, fault := range []error{holdfast.ErrInvalid, holdfast.ErrSchema, holdfast.ErrUnsupported, idempotency.ErrNested, errRecord} {
		if errors.Is(err, fault) {
			return internal(), false
		}
	}
	return unavailable(), true
}

// lost reports whether the handler's transaction was lost: the handler has ended it itself, and what it has committed
// stands. An error about another transaction, inside the handler's own, is something else.
func lost(err error, failed *failure) bool {
	var lost *holdfast.TxLostError
	if !errors.As(err, &lost) {
		return false
	}
	return failed == nil || errors.As(lost.Err, new(*failure))
}

// unknownUnkeyed is the answer to a request without a key whose COMMIT was not answered: nothing finds out what became
// of it, and to repeat it may do it twice.
func unknownUnkeyed(err error) error {
	return &requestError{Problem{
		Type: ProblemUnknown, Title: "Outcome is unknown", Status: http.StatusServiceUnavailable,
		Detail: "It is not known whether this was done, and the request had no Idempotency-Key to ask with. Look for its effect before you send it again.",
	}, err, false}
}

// An earlier request whose response was lost may have been executed.
func unavailable() Problem {
	return Problem{
		Type: ProblemUnavailable, Title: "Not available, for now", Status: http.StatusServiceUnavailable,
		Detail: "This request did nothing; an earlier one with the same key may have. Retry with the same key.",
	}
}

func internal() Problem {
	return Problem{
		Type: ProblemInternal, Title: "Internal error", Status: http.StatusInternalServerError,
		Detail: "This request did nothing, because of a fault in the service.",
	}
}

// partly is internal for a handler whose transaction was lost: what it had committed itself stands.
func partly(then string) Problem {
	p := internal()
	p.Detail = "The service lost its transaction to a fault of its own, and a part of this request may be done. " + then
	return p
}

func rejected(r *idempotency.Rejection) Problem {
	return Problem{
		Type: ProblemRejected, Title: "Rejected", Status: http.StatusUnprocessableEntity,
		Detail: r.Message, Code: r.Code,
	}
}

package main

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/holdfast-go/holdfast/idempotency"
)

// The outcomes of a request, as the page and the storm name them.
const (
	executed   = "executed"
	replayed   = "replayed"
	rejected   = "rejected"
	mismatch   = "mismatch"
	expired    = "expired"
	noOrder    = "no order"
	inProgress = "in progress"
	unknown    = "unknown"
	failed     = "failed"
)

// answer is the response to one request.
type answer struct {
	outcome string
	refund  Refund  // for executed and replayed
	problem problem // for all other outcomes
	replay  bool    // a stored result, including a rejection
	again   bool    // retrying with the same number is right
}

// answerOf turns the result of a strategy into an answer. Every outcome has its own status, so
// that a client knows whether to retry.
func answerOf(refund Refund, wasReplayed bool, err error) answer {
	var rejection *idempotency.Rejection
	var old *idempotency.ExpiredError
	switch {
	case err == nil && wasReplayed:
		return answer{outcome: replayed, refund: refund, replay: true}
	case err == nil:
		return answer{outcome: executed, refund: refund}

	// Definite: a retry gives the same answer.
	case errors.As(err, &rejection):
		return answer{outcome: rejected, replay: wasReplayed, problem: problem{
			Status: http.StatusUnprocessableEntity, Code: rejection.Code, Detail: rejection.Message,
		}}
	case errors.Is(err, idempotency.ErrMismatch):
		return answer{outcome: mismatch, problem: problem{
			Status: http.StatusUnprocessableEntity, Code: "mismatch",
			Detail: "this refund number was used before with another amount: use a new number for a new refund",
		}}
	case errors.As(err, &old) && old.Rejected:
		return answer{outcome: rejected, problem: problem{
			Status: http.StatusUnprocessableEntity, Code: "rejected",
			Detail: "this refund was rejected, and the reason is no longer kept",
		}}
	case errors.Is(err, idempotency.ErrExpired):
		return answer{outcome: expired, problem: problem{
			Status: http.StatusGone, Code: "expired",
			Detail: "this refund was made, and its answer is no longer kept",
		}}
	case errors.Is(err, errNoOrder):
		return answer{outcome: noOrder, problem: problem{Status: http.StatusNotFound, Code: "no_order", Detail: err.Error()}}

	// Open: a retry with the same number is safe, and gives the outcome.
	case errors.Is(err, idempotency.ErrInProgress):
		return answer{outcome: inProgress, again: true, problem: problem{
			Status: http.StatusConflict, Code: "in_progress",
			Detail: "this refund is being made: ask again with the same number",
		}}
	case errors.Is(err, idempotency.ErrUnknown):
		slog.Warn("refund in doubt", "error", err)
		return answer{outcome: unknown, again: true, problem: problem{
			Status: http.StatusServiceUnavailable, Code: "unknown",
			Detail: "nobody knows yet whether this refund was made: retry with the same key",
		}}
	}
	slog.Error("refund failed", "error", err)
	return answer{outcome: failed, again: true, problem: problem{
		Status: http.StatusServiceUnavailable, Code: "unavailable",
		Detail: "this refund could not be made now: retry with the same key",
	}}
}

// write sends the answer.
func (a answer) write(w http.ResponseWriter) {
	if a.replay {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	if a.again {
		w.Header().Set("Retry-After", "1")
	}
	switch a.outcome {
	case executed:
		writeJSON(w, http.StatusCreated, a.refund)
	case replayed:
		writeJSON(w, http.StatusOK, a.refund)
	default:
		writeProblem(w, a.problem)
	}
}

package idemhttp

import (
	"encoding/json"
	"net/http"
	"time"
)

const defaultProblemBase = "/problems/"

// The types of the problems: stable, for programs. With Options.ProblemBase that stands in the place of
// "/problems/", and the rest is the same. Any other type comes from the handler.
const (
	// ProblemKeyMissing (400): the request needs an Idempotency-Key.
	ProblemKeyMissing = defaultProblemBase + "key-missing"
	// ProblemKeyMalformed (400): the key is empty, too long, given more than once, or not a
	// string.
	ProblemKeyMalformed = defaultProblemBase + "key-malformed"
	// ProblemRequest (400): the body could not be read, or the key or fingerprint could not be
	// derived.
	ProblemRequest = defaultProblemBase + "request"
	// ProblemOwner (403): the owner of the request is not known.
	ProblemOwner = defaultProblemBase + "owner"
	// ProblemBodyTooLarge (413): the request's body is larger than allowed.
	ProblemBodyTooLarge = defaultProblemBase + "body-too-large"
	// ProblemInProgress (409, Retry-After): a request with this key is in progress. Retry later
	// with the same key.
	ProblemInProgress = defaultProblemBase + "in-progress"
	// ProblemMismatch (422): the key was used for another request, and nothing was done for this
	// one. Use one key per intent.
	ProblemMismatch = defaultProblemBase + "mismatch"
	// ProblemSimilar (409, Idempotency-Confirm): a similar request with another key was
	// executed, and nothing was done for this one. Ask the user; if it is meant, send it again
	// with the header Idempotency-Confirm of this response. See Options.Similar.
	ProblemSimilar = defaultProblemBase + "similar"
	// ProblemTooMany (429, Retry-After): the owner has used too many new keys, and nothing was done.
	// Retry later with the same key. See idempotency.Options.MaxNew.
	ProblemTooMany = defaultProblemBase + "too-many"
	// ProblemBusy (503, Retry-After): the requests that are served at once hold as much memory as they
	// may, and nothing was done. Retry with the same key. See Options.MaxHeld.
	ProblemBusy = defaultProblemBase + "busy"
	// ProblemRejected (422): the handler rejected the request; code says why, as long as the result is kept. It stays rejected until
	// the rejection expires (idempotency.Options.RejectionTTL, by default 30 days); then its key may execute.
	ProblemRejected = defaultProblemBase + "rejected"
	// ProblemExpired (410): the request was executed, and the response is no longer kept.
	ProblemExpired = defaultProblemBase + "expired"
	// ProblemNotFound (404): there is no started operation with this address, or nothing is stored
	// with this key (see Middleware.Lookup), or it is another owner's.
	ProblemNotFound = defaultProblemBase + "not-found"
	// ProblemTooLate (409): the operation to be cancelled has ended, or has begun its call (see Cancel).
	ProblemTooLate = defaultProblemBase + "too-late"
	// ProblemUnknown (503, Retry-After): it is not known yet whether the request was executed.
	// Retry with the same key.
	ProblemUnknown = defaultProblemBase + "unknown"
	// ProblemUnavailable (503, Retry-After): this request did nothing, but an earlier one with the
	// same key may have. Retry with the same key.
	ProblemUnavailable = defaultProblemBase + "unavailable"
	// ProblemInternal (500): this request did nothing, because of a fault in the service; the detail says so if a part of it may be done.
	ProblemInternal = defaultProblemBase + "internal"
)

// Problem is the body of an error, as defined by RFC 9457.
type Problem struct {
	// Type is one of the constants, with Options.ProblemBase. Title is its text for people.
	Type  string `json:"type"`
	Title string `json:"title"`
	// Status is the status of the response.
	Status int `json:"status"`
	// Detail says what to do.
	Detail string `json:"detail,omitempty"`
	// Code is the code of a rejection.
	Code string `json:"code,omitempty"`
	// Operation is the operation for which the owner has used a key that Lookup does not find.
	Operation string `json:"operation,omitempty"`
	// Earlier is the similar request that was executed.
	Earlier *Earlier `json:"earlier,omitempty"`
}

// Earlier says which request was executed before. It does not tell that request's key.
type Earlier struct {
	// At is when it was executed, by the database's clock.
	At time.Time `json:"at"`
	// BusinessID is the business id of its result, if it has one (see idempotency.Identified).
	BusinessID string `json:"business_id,omitempty"`
	// Confirm is the value of Idempotency-Confirm that confirms the request.
	Confirm string `json:"confirm"`
}

// writeProblem is the default of Options.WriteProblem.
func writeProblem(w http.ResponseWriter, _ *http.Request, p Problem) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may have disconnected
}

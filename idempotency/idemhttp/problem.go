package idemhttp

import (
	"encoding/json"
	"net/http"
)

// docs is where the types of the problems are explained: each is the address
// of its constant's own text.
const docs = "https://pkg.go.dev/github.com/holdfast-go/holdfast/idempotency/idemhttp#"

// The types of the problems: stable, for programs. Whatever is not among them
// comes from the handler.
const (
	// ProblemKeyMissing (400): the request needs an Idempotency-Key.
	ProblemKeyMissing = docs + "ProblemKeyMissing"
	// ProblemKeyMalformed (400): the key is empty, too long, given more than
	// once, or no string.
	ProblemKeyMalformed = docs + "ProblemKeyMalformed"
	// ProblemRequest (400): the body could not be read, or key or fingerprint
	// could not be made of it.
	ProblemRequest = docs + "ProblemRequest"
	// ProblemTenant (403): it is not known whose request it is.
	ProblemTenant = docs + "ProblemTenant"
	// ProblemBodyTooLarge (413): the request's body is larger than allowed.
	ProblemBodyTooLarge = docs + "ProblemBodyTooLarge"
	// ProblemInProgress (409, Retry-After): a request with this key is under
	// way. Ask again later with the same key.
	ProblemInProgress = docs + "ProblemInProgress"
	// ProblemMismatch (422): the key was used for another request, and nothing
	// was done for this one. Use a key per intent.
	ProblemMismatch = docs + "ProblemMismatch"
	// ProblemRejected (422): the handler refused for good; code says why.
	ProblemRejected = docs + "ProblemRejected"
	// ProblemExpired (410): it was done, and the answer is no longer kept.
	ProblemExpired = docs + "ProblemExpired"
	// ProblemUnknown (503, Retry-After): nobody knows yet whether it was done.
	// Retry with the same key.
	ProblemUnknown = docs + "ProblemUnknown"
	// ProblemUnavailable (503, Retry-After): this request did nothing; an
	// earlier one with the same key may have. Retry with the same key.
	ProblemUnavailable = docs + "ProblemUnavailable"
	// ProblemInternal (500): this request did nothing, because of a fault in
	// the service.
	ProblemInternal = docs + "ProblemInternal"
)

// Problem is the body of an error, as RFC 9457 has it.
type Problem struct {
	// Type is one of the constants, Title its text for people.
	Type  string `json:"type"`
	Title string `json:"title"`
	// Status is that of the response.
	Status int `json:"status"`
	// Detail says what to do.
	Detail string `json:"detail,omitempty"`
	// Code is that of a rejection.
	Code string `json:"code,omitempty"`
}

// writeProblem is the default of Options.WriteProblem.
func writeProblem(w http.ResponseWriter, _ *http.Request, p Problem) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and a number have a JSON form
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that is gone is told nothing
}

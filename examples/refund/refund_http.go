package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of a client's request.
const (
	maxBody = 4 << 10
	maxName = 64 // of an order or a refund number, in bytes
)

// postRefund makes a refund:
//
//	POST /orders/A-17/refunds
//	{"refund": "1", "amount": "12.50"}
//
// refund is the client's own number of this refund of the order: the same number is the same
// refund. ?protect= chooses the protection, for the page.
func (s *service) postRefund(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	req, err := s.readRequest(w, r)
	if err != nil {
		writeProblem(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Detail: err.Error()})
		return
	}
	name := r.URL.Query().Get("protect")
	if name == "" {
		name = s.protect
	}
	chosen, err := findProtection(name)
	if err != nil {
		writeProblem(w, problem{Status: http.StatusBadRequest, Code: "bad_request", Detail: err.Error()})
		return
	}
	refundOnce, err := s.strategy(r.Context(), chosen)
	if err != nil {
		writeUnopened(w, err)
		return
	}
	refund, replayed, err := refundOnce(r.Context(), req)
	a := answerOf(refund, replayed, err)
	s.events.add(event{
		Order: req.Order, Refund: req.Number, Amount: req.Amount.String(),
		Protect: name, Outcome: a.outcome, Detail: a.problem.Detail,
	}, began)
	a.write(w)
}

func (s *service) readRequest(w http.ResponseWriter, r *http.Request) (Request, error) {
	key, err := keyHeader(r.Header.Values("Idempotency-Key"))
	if err != nil {
		return Request{}, err
	}
	var body struct {
		Refund string `json:"refund"`
		Amount string `json:"amount"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields() // a misspelt field must not become an empty one
	if err := decoder.Decode(&body); err != nil {
		return Request{}, fmt.Errorf(`the body is not {"refund": "1", "amount": "12.50"}: %w`, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Request{}, errors.New("the body is more than one JSON object")
	}
	req := Request{Merchant: s.authenticate(r), Order: r.PathValue("order"), Number: body.Refund, Key: key}
	if err := checkName("order", req.Order); err != nil {
		return Request{}, err
	}
	if err := checkName("refund", req.Number); err != nil {
		return Request{}, err
	}
	if req.Amount, err = parseMoney(body.Amount); err != nil {
		return Request{}, fmt.Errorf("amount: %w", err)
	}
	if !req.Amount.Positive() {
		return Request{}, errors.New("amount: it is not more than zero")
	}
	return req, nil
}

func checkName(field, value string) error {
	control := func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }
	switch {
	case value == "":
		return fmt.Errorf("%s: it is missing", field)
	case len(value) > maxName:
		return fmt.Errorf("%s: it is longer than %d bytes", field, maxName)
	case strings.ContainsFunc(value, control):
		return fmt.Errorf("%s: it is not plain text", field)
	}
	return nil
}

// keyHeader accepts the Idempotency-Key header, quoted as the IETF draft defines it or bare as most
// clients send it, but the protections do not use it: the key is derived from order and refund number.
// Otherwise two clients that generate two keys for one refund would be paid twice. A client that
// reuses a key by mistake is caught by the order and number anyway. A service whose requests carry
// no number must use the header as the key instead: see protect_intent.go.
func keyHeader(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	foreign := func(r rune) bool { return r < ' ' || r > '~' || r == '"' }
	if len(values) > 1 || key == "" || len(key) > 255 || strings.ContainsFunc(key, foreign) {
		return "", errors.New(`Idempotency-Key: give one key of 1 to 255 printable characters, such as "7f9c"`)
	}
	return key, nil
}

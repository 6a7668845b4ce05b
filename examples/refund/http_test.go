package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// post sends a refund request to the handler without a network.
func post(t *testing.T, h http.Handler, path, body string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestRefundOverHTTP(t *testing.T) {
	t.Parallel()
	s, pool := openTest(t, dbtest.DSN(t, dbtest.SQLite))
	testOrder(t, pool, "A-1", "20.00")
	h := s.handler()
	for i, step := range []struct {
		path, body, header string
		status             int
		replayed           string
		code               string
	}{
		{"/orders/A-1/refunds", `{"refund":"1","amount":"12.50"}`, `"quoted"`, 201, "", ""},
		{"/orders/A-1/refunds", `{"refund":"1","amount":"12.50"}`, `bare`, 200, "true", ""},
		{"/orders/A-1/refunds", `{"refund":"1","amount":"12.50"}`, ``, 200, "true", ""},
		{"/orders/A-1/refunds", `{"refund":"1","amount":"13.00"}`, ``, 422, "", "mismatch"},
		{"/orders/A-1/refunds", `{"refund":"2","amount":"12.50"}`, ``, 422, "", "over_refund"},
		{"/orders/A-1/refunds", `{"refund":"2","amount":"12.50"}`, ``, 422, "true", "over_refund"},
		{"/orders/A-2/refunds", `{"refund":"1","amount":"12.50"}`, ``, 404, "", "no_order"},
		{"/orders/A-1/refunds", `{"refund":"3","amount":"12.50"}`, `"half`, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"3","amount":"0.00"}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"3","amount":1}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"3","amount":"1"}{}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"","amount":"1"}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"a\u0000","amount":"1"}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"3","sum":"1"}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds", `{"refund":"` + strings.Repeat("x", 5000) + `"}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds?protect=magic", `{"refund":"3","amount":"1"}`, ``, 400, "", "bad_request"},
		{"/orders/A-1/refunds?protect=none", `{"refund":"3","amount":"1"}`, ``, 201, "", ""},
	} {
		var headers []string
		if step.header != "" {
			headers = []string{"Idempotency-Key", step.header}
		}
		response := post(t, h, step.path, step.body, headers...)
		if response.StatusCode != step.status || response.Header.Get("Idempotent-Replayed") != step.replayed {
			t.Errorf("step %d: %d, replayed %q", i, response.StatusCode, response.Header.Get("Idempotent-Replayed"))
		}
		var body struct{ ID, Code string }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Code != step.code {
			t.Errorf("step %d: code %q, %v", i, body.Code, err)
		}
		problem := response.Header.Get("Content-Type") == "application/problem+json"
		if problem == (step.code == "") || (body.ID != "") == problem {
			t.Errorf("step %d: %s, %+v", i, response.Header.Get("Content-Type"), body)
		}
	}
}

func TestEveryOutcomeHasAnAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		status int
		again  bool
	}{
		"in progress": {&idempotency.InProgressError{}, 409, true},
		"mismatch":    {&idempotency.MismatchError{}, 422, false},
		"expired":     {idempotency.ErrExpired, 410, false},
		"rejected":    {fmt.Errorf("x: %w", idempotency.Reject("no", "never")), 422, false},
		"unknown":     {&holdfast.UnknownError{Err: io.ErrUnexpectedEOF}, 503, true},
		"retry":       {&holdfast.RetryError{Err: errors.New("deadlock")}, 503, true},
		"lease lost":  {&sqllock.LostError{}, 503, true},
		"lock held":   {idempotency.ErrInProgress, 409, true},
		"anything":    {errors.New("secret host name"), 503, true},
	} {
		w := httptest.NewRecorder()
		answerOf(Refund{}, false, c.err).write(w)
		if w.Code != c.status || (w.Header().Get("Retry-After") != "") != c.again {
			t.Errorf("%s: %d, Retry-After %q", name, w.Code, w.Header().Get("Retry-After"))
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: the answer tells what the database said: %s", name, w.Body)
		}
	}
}

func TestOtherSitesCannotRefund(t *testing.T) {
	t.Parallel()
	s, pool := openTest(t, dbtest.DSN(t, dbtest.SQLite))
	testOrder(t, pool, "A-1", "20.00")
	response := post(t, s.handler(), "/orders/A-1/refunds", `{"refund":"1","amount":"1"}`, "Sec-Fetch-Site", "cross-site")
	if response.StatusCode != http.StatusForbidden {
		t.Error(response.Status)
	}
}

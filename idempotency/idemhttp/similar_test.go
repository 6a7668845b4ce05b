package idemhttp_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// similar is the option of a service whose clients generate a key for each click.
func similar(r *http.Request, body []byte) (*idempotency.Similar, error) {
	switch string(body) {
	case "none":
		return nil, nil
	case "error":
		return nil, errors.New("no amount")
	}
	return &idempotency.Similar{By: []string{r.PathValue("order"), string(body)}, Window: time.Hour}, nil
}

// similarRequests refuses a request with another key, and executes it once it is confirmed.
func similarRequests[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{Similar: similar}, refund[Tx])
	other := s.replica(idempotency.Options{}, idemhttp.Options{Similar: similar}, refund[Tx])
	first := s.post("a", "first", "100")
	s.want("first", first, http.StatusCreated, "")
	token := ""
	for _, s := range []*service[Tx]{s, other} {
		a := s.post("a", "second", "100")
		s.want("another key", a, http.StatusConflict, idemhttp.ProblemSimilar)
		token = a.header.Get(idemclient.HeaderConfirm)
		var p idemhttp.Problem
		if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Earlier == nil || p.Earlier.Confirm != token || len(token) != 32 || time.Since(p.Earlier.At).Abs() > time.Hour {
			e.Errorf("%v: %v", a, err)
		}
		if strings.Contains(a.body, "first") || a.header.Get("Retry-After") != "" || !idemclient.Definite(&http.Response{StatusCode: a.status, Header: a.header}) {
			e.Errorf("it tells the key, or asks for a retry: %v", a)
		}
	}
	s.wantReplay(first, other.post("a", "first", "100"))
	for _, confirm := range []string{idempotency.ConfirmAny, "yes", strings.Repeat("0", 31)} {
		s.want("confirms with "+confirm, s.post("a", "second", "100", idemclient.HeaderConfirm, confirm), http.StatusBadRequest, idemhttp.ProblemRequest)
	}
	s.want("confirms what it has not seen", s.post("a", "second", "100", idemclient.HeaderConfirm, strings.Repeat("0", 32)), http.StatusConflict, idemhttp.ProblemSimilar)
	s.wantEffects("a", 1)

	second := s.post("a", "second", "100", idemclient.HeaderConfirm, token)
	s.want("confirmed", second, http.StatusCreated, "")
	s.wantReplay(second, s.post("a", "second", "100", idemclient.HeaderConfirm, token))
	s.wantReplay(second, other.post("a", "second", "100"))
	if got := other.post("a", "second", "100").header.Get(idemclient.HeaderConfirm); got != "" {
		e.Errorf("a replay has the token %q", got)
	}
	a := s.post("a", "third", "100", idemclient.HeaderConfirm, token)
	s.want("confirmed twice", a, http.StatusConflict, idemhttp.ProblemSimilar)
	if got := a.header.Get(idemclient.HeaderConfirm); got == token || len(got) != 32 {
		e.Errorf("the token is %q", got)
	}
	s.wantEffects("a", 2)
	s.want("another amount", s.post("a", "fourth", "101"), http.StatusCreated, "")
	s.want("without", s.post("b", "fifth", "none"), http.StatusCreated, "")
	s.want("without, again", s.post("b", "sixth", "none"), http.StatusCreated, "")
	s.want("an error", s.post("c", "seventh", "error"), http.StatusBadRequest, idemhttp.ProblemRequest)
}

// similarClicks clicks often, at two processes, with a fresh key for each click: with the guard there
// is one refund, without it one for each click.
func similarClicks[Tx any](e *conformance.Env[Tx]) {
	wait := idempotency.Options{Wait: time.Minute}
	for order, o := range map[string]idemhttp.Options{"guarded": {Similar: similar}, "control": {}} {
		const clicks = 12
		replicas := []*service[Tx]{start(e, wait, o, refund[Tx]), start(e, wait, o, refund[Tx])}
		status := make([]int, clicks)
		var wg sync.WaitGroup
		for i := range clicks {
			wg.Go(func() { status[i] = replicas[i%2].post(order, uuid.NewString(), "100").status })
		}
		wg.Wait()
		answers := map[int]int{}
		for _, s := range status {
			answers[s]++
		}
		want := 1
		if order == "control" {
			want = clicks
		}
		if answers[http.StatusCreated] != want || answers[http.StatusConflict] != clicks-want {
			e.Errorf("%s: %v", order, answers)
		}
		replicas[0].wantEffects(order, want)
	}
}

package idemhttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// lookups asks what became of keys. The answer is that of a retry, and nothing is executed.
func lookups[Tx any](e *conformance.Env[Tx]) {
	started, free := make(chan struct{}), make(chan struct{})
	owner := func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	s := start(e, idempotency.Options{}, idemhttp.Options{Owner: owner}, func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		switch r.PathValue("order") {
		case "rejected":
			return idempotency.Reject("over_refund", "more than was paid")
		case "gone":
			w.WriteHeader(http.StatusNotFound)
			return nil
		case "conflict":
			w.WriteHeader(http.StatusConflict)
			return nil
		case "slow":
			close(started)
			<-free
		}
		w.Header().Set("Cache-Control", "public")
		return refund(s, w, r, tx)
	})
	anna, bert := []string{"Authorization", "anna"}, []string{"Authorization", "bert"}
	look := func(key string, who []string) answer {
		a, err := s.ask(s.Ctx, http.MethodGet, "/lookup", key, "", who...)
		if err != nil {
			e.Error(err)
		}
		if a.header.Get("Cache-Control") != "no-store" {
			e.Errorf("a cache may keep %v", a)
		}
		return a
	}
	for _, order := range []string{"paid", "rejected", "gone"} {
		first := s.post(order, order, "100", anna...)
		s.wantRuns(1)
		a := look(order, anna)
		if !a.replayed || a.status != first.status || a.body != first.body {
			e.Errorf("%s: got %v, first it was %v", order, a, first)
		}
		s.want("another owner's", look(order, bert), http.StatusNotFound, idemhttp.ProblemNotFound)
	}
	s.post("conflict", "conflict", "100", anna...) // is not stored
	s.wantRuns(1)
	s.want("not stored", look("conflict", anna), http.StatusNotFound, idemhttp.ProblemNotFound)
	s.want("no key", look("", anna), http.StatusBadRequest, idemhttp.ProblemKeyMissing)
	s.want("too long a key", look(strings.Repeat("k", 256), anna), http.StatusBadRequest, idemhttp.ProblemKeyMalformed)
	s.want("nobody", look("paid", nil), http.StatusForbidden, idemhttp.ProblemOwner)

	if a, err := s.ask(s.Ctx, http.MethodPost, "/other/x", "elsewhere", "", anna...); err != nil || a.status != http.StatusCreated {
		e.Errorf("got %v, %v", a, err)
	}
	s.wantRuns(1)
	hint := func(who []string) string {
		a := look("elsewhere", who)
		s.want("of another operation", a, http.StatusNotFound, idemhttp.ProblemNotFound)
		var p idemhttp.Problem
		if err := json.Unmarshal([]byte(a.body), &p); err != nil {
			e.Error(err)
		}
		return p.Operation
	}
	if mine, theirs := hint(anna), hint(bert); mine != "other" || theirs != "" {
		e.Errorf("the hint is %q, and %q for another owner", mine, theirs)
	}
	s.wantRuns(0)

	slow := make(chan answer)
	go func() { slow <- s.post("slow", "slow", "100", anna...) }()
	<-started
	status, problem := http.StatusNotFound, idemhttp.ProblemNotFound // others do not see the transaction
	if e.InnoDB() {
		status, problem = http.StatusConflict, idemhttp.ProblemInProgress
	}
	s.want("in progress", look("slow", anna), status, problem)
	close(free)
	<-slow
	s.wantRuns(1)

	e.Must(`UPDATE holdfast_records SET state = 1, result = NULL`)
	s.want("unknown", look("paid", anna), http.StatusServiceUnavailable, idemhttp.ProblemUnknown)
	s.wantRuns(0)
}

// TestLookupOfOutcomes looks at keys whose requests are not over, or not kept.
func TestLookupOfOutcomes(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	store, err := idempotency.New(t.Context(), kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	op := func(key string) idempotency.Op {
		return idempotency.Op{Name: "refund", Key: key, NoFingerprint: true, Wait: time.Minute}
	}
	kit.Expire(store, op("expired"), "R-1")
	kit.Reject(store, op("rejected"), "closed", "the shop is closed") // by other code than a middleware
	for key, want := range map[string]struct {
		status  int
		problem string
	}{
		"expired":  {http.StatusGone, idemhttp.ProblemExpired},
		"rejected": {http.StatusUnprocessableEntity, idemhttp.ProblemRejected},
		"never":    {http.StatusNotFound, idemhttp.ProblemNotFound},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/lookup", http.NoBody)
		r.Header.Set(idemclient.HeaderKey, key)
		w := httptest.NewRecorder()
		m.Lookup("refund").ServeHTTP(w, r)
		if w.Code != want.status || !strings.Contains(w.Body.String(), want.problem) || w.Header().Get(idemclient.HeaderReplayed) != "" {
			t.Errorf("%s: %d %v %s", key, w.Code, w.Header(), w.Body)
		}
	}
}

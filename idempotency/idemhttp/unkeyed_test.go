package idemhttp_test

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemclient"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
)

// unkeyed serves requests without a key as if there were no middleware, in a transaction of their own, and keeps the
// promises for those with one.
func unkeyed[Tx any](e *conformance.Env[Tx]) {
	answers := func(s *service[Tx], w http.ResponseWriter, r *http.Request, tx Tx) error {
		switch order := r.PathValue("order"); order {
		case "rejected":
			if err := s.Effect(r.Context(), tx, order); err != nil {
				return err
			}
			return idempotency.Reject("no", "not this one")
		case "conflict":
			w.WriteHeader(http.StatusConflict)
			return s.Effect(r.Context(), tx, order)
		case "broken":
			return errors.Join(s.Effect(r.Context(), tx, order), errBoom)
		}
		return refund(s, w, r, tx)
	}
	s := start(e, idempotency.Options{}, idemhttp.Options{Unkeyed: idemhttp.ServeUnkeyed}, answers)
	for range 2 {
		a := s.post("twice", "", "100")
		s.want("no key", a, http.StatusCreated, "")
		if !strings.HasPrefix(a.body, "refunded 100") || a.header.Get("Location") != "/refunds/twice" {
			e.Errorf("got %v", a)
		}
		s.want("rejected", s.post("rejected", "", "1"), http.StatusUnprocessableEntity, idemhttp.ProblemRejected)
		s.want("conflict", s.post("conflict", "", "1"), http.StatusConflict, "")
		s.want("broken", s.post("broken", "", "1"), http.StatusInternalServerError, idemhttp.ProblemInternal)
	}
	s.wantEffects("twice", 2)
	for _, order := range []string{"rejected", "conflict", "broken"} {
		s.wantEffects(order, 0)
	}
	if n := s.records(); n != 0 {
		e.Errorf("%d records of requests without a key", n)
	}
	first := s.post("once", "k", "100")
	s.wantReplay(first, s.post("once", `"k"`, "100"))
	e.WantOnce("once")
	s.want("malformed", s.post("once", `""`, "100"), http.StatusBadRequest, idemhttp.ProblemKeyMalformed)
}

// unkeyedReported serves what would have been refused, and tells each.
func unkeyedReported[Tx any](e *conformance.Env[Tx]) {
	told := new(tracetest.Recorder)
	on := *e
	on.DB = e.Handle.Open(e, e.DSN, holdfast.Options{Tracers: []holdfast.Tracer{told}}).DB
	s := start(&on, idempotency.Options{}, idemhttp.Options{Unkeyed: idemhttp.ReportUnkeyed, MaxKey: 8}, refund[Tx])
	for i, key := range []string{"", `""`, "123456789"} {
		s.want("served", s.post(fmt.Sprint(i), key, "100"), http.StatusCreated, "")
		e.WantOnce(fmt.Sprint(i))
	}
	first := s.post("once", "k", "100")
	s.wantReplay(first, s.post("once", "k", "100"))
	events := told.Events("http.unkeyed")
	if len(events) != 3 || events[0].Outcome != "missing" || events[1].Outcome != "malformed" || events[2].Outcome != "malformed" ||
		events[0].Operation != "refund" || events[0].Count != 1 {
		e.Errorf("got %+v", events)
	}
}

// unkeyedDerived derives the key where the header is missing.
func unkeyedDerived[Tx any](e *conformance.Env[Tx]) {
	s := start(e, idempotency.Options{}, idemhttp.Options{
		Key: func(r *http.Request, body []byte) (string, error) {
			key, err := idemclient.ParseKey(r.Header)
			if errors.Is(err, idemclient.ErrKeyMissing) && len(body) > 0 {
				return idempotency.KeyOf(r.PathValue("order"), string(body)), nil
			}
			return key, err
		},
	}, refund[Tx])
	first := s.post("a", "", "1")
	s.wantReplay(first, s.post("a", "", "1"))
	s.want("a key of its own", s.post("b", "k", "1"), http.StatusCreated, "")
	s.want("malformed", s.post("b", `""`, "1"), http.StatusBadRequest, idemhttp.ProblemKeyMalformed)
	s.want("none", s.post("b", "", ""), http.StatusBadRequest, idemhttp.ProblemKeyMissing)
}

// TestUnkeyedIsUnknown loses the answer to COMMIT. No client can ask what became of a request without a key, so it is
// not told to try again.
func TestUnkeyedIsUnknown(t *testing.T) {
	t.Parallel()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	store, err := idempotency.New(t.Context(), kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	m, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{Unkeyed: idemhttp.ServeUnkeyed, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	kit.LoseCommit(true)
	w := httptest.NewRecorder()
	m.Handler(func(http.ResponseWriter, *http.Request, *sql.Tx) error { return nil }).
		ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" ||
		!strings.Contains(w.Body.String(), idemhttp.ProblemUnknown) || strings.Contains(w.Body.String(), "same key") {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
}

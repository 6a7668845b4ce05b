package idemhttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// startedCancels cancels a refund that has been started and has paid nothing, and one that is being paid.
func startedCancels[Tx any](e *conformance.Env[Tx]) {
	s := starts(e, idemhttp.Options{})
	location := s.ask("POST", "/refunds/a", "k1").Header().Get("Location")
	s.want("another owner", s.ask("DELETE", location, "", "Authorization", "mallory"), http.StatusNotFound, idemhttp.ProblemNotFound)
	s.want("no such one", s.ask("DELETE", where+strings.Repeat("A", 43), ""), http.StatusNotFound, idemhttp.ProblemNotFound)
	s.want("no address", s.ask("DELETE", where+"x", ""), http.StatusNotFound, idemhttp.ProblemNotFound)
	s.want("no owner", s.ask("DELETE", location, "", "Authorization", ""), http.StatusForbidden, idemhttp.ProblemOwner)
	for _, what := range []string{"cancelled", "again"} {
		s.want(what, s.ask("DELETE", location, ""), http.StatusNoContent, "")
	}
	s.want("its status", s.ask("GET", location, ""), http.StatusUnprocessableEntity, idempotency.CodeVoided)
	s.want("a duplicate", s.ask("POST", "/refunds/a", "k1"), http.StatusUnprocessableEntity, idempotency.CodeVoided)
	if done, err := s.runner.Complete(e.Ctx); err != nil || done.Found != 0 || s.paid != 0 {
		e.Errorf("%+v, %v, paid %d times", done, err, s.paid)
	}

	location = s.ask("POST", "/refunds/b", "k2").Header().Get("Location")
	s.answers(func(context.Context) (string, error) {
		w := s.ask("DELETE", location, "")
		s.want("while it is paid", w, http.StatusConflict, idemhttp.ProblemTooLate)
		s.want("while it is paid", w, http.StatusConflict, "in progress")
		return "paid", nil
	})
	if done, err := s.runner.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	s.want("paid", s.ask("DELETE", location, ""), http.StatusConflict, "succeeded")
	s.want("its status", s.ask("GET", location, ""), http.StatusOK, `"result":"paid"`)
}

// TestCancelNeedsARunner checks that a cancel of nothing is refused when it is set up.
func TestCancelNeedsARunner(t *testing.T) {
	t.Parallel()
	if _, err := idemhttp.Cancel(&idemhttp.Middleware[string]{}, nil); err == nil {
		t.Error("a cancel without a runner")
	}
}

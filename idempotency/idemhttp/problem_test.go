package idemhttp_test

import (
	"database/sql"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// TestProblemBase checks that the types of problems are the service's own: never an address of
// another host by default, and below ProblemBase where it is set.
func TestProblemBase(t *testing.T) {
	t.Parallel()
	e := conformance.New(t, conformance.SQL(), dbtest.SQLite)
	store := e.Store(idempotency.Options{})
	for base, want := range map[string]string{
		"":                              "/problems/key-missing",
		"/problems/":                    idemhttp.ProblemKeyMissing,
		"https://api.example/problems/": "https://api.example/problems/key-missing",
		"urn:shop:problem:":             "urn:shop:problem:key-missing",
	} {
		m, err := idemhttp.New(store, idemhttp.Operation("refund"), idemhttp.Options{ProblemBase: base, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		m.Handler(func(http.ResponseWriter, *http.Request, *sql.Tx) error { return nil }).
			ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/refunds", strings.NewReader("{}")))
		var p idemhttp.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusBadRequest || p.Type != want {
			t.Errorf("base %q: status %d, type %q, want %q (%v)", base, w.Code, p.Type, want, err)
		}
	}
}

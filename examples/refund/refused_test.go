package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/browsertest"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// openCluster opens a service whose database is declared to accept writes on several nodes.
// TestGaleraExample in internal/test/cluster uses a real cluster.
func openCluster(t *testing.T, url string) *service {
	t.Helper()
	s, pool := openTest(t, url)
	testOrder(t, pool, "A-1", "100.00")
	access.Of(s.db).Dialect.Capabilities.MultiPrimary = true
	return s
}

// The service reports each protection that an engine refuses. The other protections still
// work.
func TestRefusedProtections(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		s := openCluster(t, dbtest.DSN(t, e))
		if s.locks != nil || len(s.strategies) != 1 {
			t.Errorf("%d protections are open before one is asked for", len(s.strategies))
		}
		h := s.handler()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/protections", http.NoBody))
		var got struct {
			Protections []struct{ Name, Refused string }
		}
		if err := json.NewDecoder(w.Body).Decode(&got); err != nil || len(got.Protections) != len(protections) {
			t.Fatalf("%d, %+v, %v", w.Code, got, err)
		}
		for n, p := range got.Protections {
			if (p.Name == withRowLock.name) != strings.Contains(p.Refused, "another node") {
				t.Errorf("%s is refused: %q", p.Name, p.Refused)
			}
			number := string(rune('1' + n))
			response := post(t, h, "/orders/A-1/refunds?protect="+p.Name, `{"refund":"`+number+`","amount":"1"}`)
			want := http.StatusCreated
			if p.Refused != "" {
				want = http.StatusNotImplemented
			}
			if response.StatusCode != want {
				t.Errorf("%s: %s", p.Name, response.Status)
			}
		}
	})
}

func TestPageShowsWhatTheEngineRefuses(t *testing.T) {
	t.Parallel()
	b := browsertest.Open(t, 1440)
	server := httptest.NewServer(openCluster(t, dbtest.DSN(t, dbtest.SQLite)).handler())
	t.Cleanup(server.Close)
	b.Go(server.URL, "body.ready .order")
	b.Eventually(`document.querySelectorAll("#protections input:disabled").length === 1`)
	b.Eventually(`document.querySelector(".choice.refused").textContent.includes("another node")`)
	b.Eventually(`document.querySelector("#protections input:checked").value === "idempotency"`)
}

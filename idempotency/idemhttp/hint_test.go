package idemhttp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// TestMismatchHint checks that 422 says why the same form, sent again, is another request.
func TestMismatchHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		media, coding, want string
		own                 bool // the service's own fingerprint
	}{
		{media: "application/json", coding: "br", want: "compressed"},
		{media: "application/json", coding: "gzip"},
		{media: "application/json"},
		{media: "application/json", coding: "br", own: true},
	} {
		m := &Middleware[struct{}]{bytewise: !c.own}
		if err := m.options.withDefaults(true); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a", http.NoBody)
		r.Header.Set("Content-Type", c.media)
		r.Header.Set("Content-Encoding", c.coding)
		w := httptest.NewRecorder()
		m.refuse(w, r, &idempotency.MismatchError{})
		body := w.Body.String()
		if w.Code != http.StatusUnprocessableEntity || strings.Contains(body, "byte by byte") != (c.want != "") || !strings.Contains(body, c.want) {
			t.Errorf("%+v: %d, %s", c, w.Code, body)
		}
	}
}

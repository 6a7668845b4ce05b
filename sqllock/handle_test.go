package sqllock_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/sqllock"
)

// TestHandleIsNotLogged checks that a handle that is printed or logged shows none of its text, and that a
// term shows no attempt.
func TestHandleIsNotLogged(t *testing.T) {
	t.Parallel()
	if term := fmt.Sprint(sqllock.Term{}); term != `"", token 0` {
		t.Errorf("a term is printed as %s", term)
	}
	h := sqllock.Handle("1.secret.2.secret.secret.secret")
	var text, json bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("handed over", "handle", h)
	slog.New(slog.NewJSONHandler(&json, nil)).Info("handed over", "handle", h)
	for _, shown := range []string{text.String(), json.String(), h.String(), fmt.Sprint(h), fmt.Sprintf("%s %q %x %+v", h, h, h, struct{ H sqllock.Handle }{h})} {
		if shown == "" || strings.Contains(shown, "secret.") || strings.Contains(shown, fmt.Sprintf("%x", string(h))) {
			t.Errorf("it shows %s", shown)
		}
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/errcode/catalog"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqllock.ErrLost", "*sqllock.LostError"} {
		if code, out, err := command(t, "explain", name); code != exitOK || !strings.HasPrefix(out, "lease-lost: ") {
			t.Errorf("%s: status %d, %s%s", name, code, out, err)
		}
	}
	code, out, err := command(t, "explain", "unknown-outcome")
	if code != exitOK || err != "" || !strings.Contains(out, "call again with the same key") || !strings.Contains(out, "holdfast.ErrUnknown") {
		t.Errorf("status %d, %q, %q", code, out, err)
	}
	var all []explained
	if code, out, _ = command(t, "explain", "-json"); code != exitOK || json.Unmarshal([]byte(out), &all) != nil || len(all) != len(catalog.Entries) {
		t.Errorf("status %d, %q", code, out)
	}
	if code, out, _ = command(t, "explain"); code != exitOK || !strings.Contains(out, "lock-held") {
		t.Errorf("status %d, %q", code, out)
	}
	for _, c := range []struct{ typed, want string }{
		{"lock-hold", `there is no code "lock-hold"; did you mean "lock-held"?`}, {"S3cr3t", "there is no such code"},
	} {
		if code, _, err := command(t, "explain", c.typed); code != exitUsage || !strings.Contains(err, c.want) || strings.Contains(err, "S3cr3t") {
			t.Errorf("%s: status %d, %q", c.typed, code, err)
		}
	}
}

package core_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// TestBlockedBy checks that a text names what is known, and nothing without a blocker.
func TestBlockedBy(t *testing.T) {
	t.Parallel()
	full := core.Blocker{Session: "4702", User: "refunds", Client: "worker3", State: "idle in transaction", Open: 100400 * time.Millisecond}
	for want, list := range map[string][]core.Blocker{
		"": nil,
		" (blocked by session 4702 (refunds@worker3, idle in transaction, open for 1m40.4s))": {full},
		" (blocked by session 7)":                    {{Session: "7"}},
		" (blocked by session 7 (refunds))":          {{Session: "7", User: "refunds"}},
		" (blocked by session 7 (Sleep) and 2 more)": {{Session: "7", State: "Sleep"}, full, full},
	} {
		if got := core.BlockedBy(list); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

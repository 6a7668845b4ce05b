//go:build linux

package cluster_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGaleraExample checks that examples/refund keeps its promise on two nodes, under every
// protection that Galera supports, and names the one that Galera does not support.
func TestGaleraExample(t *testing.T) {
	t.Parallel()
	c := startGalera(t, 2)
	program := filepath.Join(t.TempDir(), "refund")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../../examples/refund").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	storm := func(protect string) (said string, err error) {
		out, err := exec.CommandContext(t.Context(), program, "storm", "-orders", "5", "-duplicates", "8", "-protect", protect, "-dsn", c.nodes[1].url).CombinedOutput()
		return string(out), err
	}
	for _, protect := range []string{"idempotency", "business-row", "lease", "optimistic"} {
		said, err := storm(protect)
		if err != nil || !strings.Contains(said, "orders=5 requests=40 refunds=5 ") || !strings.Contains(said, " duplicates=0 ") {
			t.Errorf("%s: %v\n%s", protect, err, said)
		}
	}
	if said, err := storm("row-lock"); err == nil || !strings.Contains(said, "another node") {
		t.Errorf("row-lock: %v\n%s", err, said)
	}
}

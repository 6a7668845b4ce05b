package prove_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/prove"
)

// TestSharded checks that a keyspace with several shards is refused: make scaleout sets the variable.
func TestSharded(t *testing.T) {
	urls := strings.Fields(os.Getenv("HOLDFAST_TEST_VITESS_SHARDED"))
	if len(urls) == 0 {
		t.Skip("HOLDFAST_TEST_VITESS_SHARDED is not set")
	}
	if _, err := prove.Run(t.Context(), prove.Options{Pool: pools(urls[0])}); err == nil || !strings.Contains(err.Error(), "unsharded keyspace") {
		t.Errorf("got %v", err)
	}
}

package holdfastvet_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/holdfast-go/holdfast/holdfastvet"
)

func TestAnalyzer(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), holdfastvet.Analyzer, "refunds", "bankparks", "banktakes", "bankonce", "leases")
}

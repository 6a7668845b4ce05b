// Package reaper contains the suites of sweeps.
package reaper

import (
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// env is one test, with the helpers of these suites. A copy of it is independent of the original.
type env[Tx any] struct{ conformance.Env[Tx] }

// run is conformance.Run for tests of this package.
func run[Tx any](t *testing.T, h conformance.Handle[Tx], f func(*env[Tx]), opts ...holdfast.Options) {
	t.Helper()
	conformance.Run(t, h, func(e *conformance.Env[Tx]) { f(&env[Tx]{*e}) }, opts...)
}

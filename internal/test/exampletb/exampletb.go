// Package exampletb replaces a *testing.T in executed examples.
package exampletb

import (
	"fmt"
	"os"
	"slices"
)

// TB implements the methods of a test that holdfasttest needs.
type TB struct{ cleanups []func() }

// New starts an example; End ends it.
func New() *TB { return &TB{} }

// Helper does nothing.
func (*TB) Helper() {}

// Cleanup registers f, which End calls.
func (t *TB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Fatalf panics.
func (*TB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// TempDir returns a directory that End removes.
func (t *TB) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// End runs the cleanups, last in, first out.
func (t *TB) End() {
	for _, f := range slices.Backward(t.cleanups) {
		f()
	}
}

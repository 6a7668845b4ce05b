// Package planted is what the faults that package gomutant writes into Go ask: whether they are the one
// that is planted.
package planted

import (
	"os"

	"github.com/holdfast-go/holdfast/internal/test/mutants/reach"
)

var name = os.Getenv("HOLDFAST_TEST_MUTANT")

// On reports whether the fault is the one that HOLDFAST_TEST_MUTANT names. It is asked only where the
// fault would change something.
func On(id string) bool {
	reach.Ran(id)
	return id == name
}

// Number is what can be added.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Plus is a + b, or a.
func Plus[T Number](id string, a, b T) T {
	if b != 0 && On(id) {
		return a
	}
	return a + b
}

// Minus is a - b, or a.
func Minus[T Number](id string, a, b T) T {
	if b != 0 && On(id) {
		return a
	}
	return a - b
}

// Error is err, or nil.
func Error(id string, err error) error {
	if err != nil && On(id) {
		return nil
	}
	return err
}

// Other is v, or another constant of its type.
func Other[T comparable](id string, v, other T) T {
	if v != other && On(id) {
		return other
	}
	return v
}

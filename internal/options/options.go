// Package options reads the options that callers may leave out.
package options

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/errcode"
)

// One returns the only element of opts, or the zero value if there is none. More
// than one is a [errcode.InputError]: a library must not guess which of them wins.
func One[T any](opts []T) (T, error) {
	var zero T
	switch len(opts) {
	case 0:
		return zero, nil
	case 1:
		return opts[0], nil
	default:
		return zero, errcode.Invalid(fmt.Sprintf("%T", zero), fmt.Sprintf("%d values were given: give one, or none for the defaults", len(opts)))
	}
}

//go:build mutants

package core

import "github.com/holdfast-go/holdfast/internal/test/mutants/reach"

// Ran notes that a statement is sent.
func Ran(name string) { reach.Ran(name) }

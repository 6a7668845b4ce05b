// Package catalog says what each error of Holdfast means and what to do. The page
// docs/reference/errors.md and holdfast explain are made from it.
package catalog

import (
	"slices"
	"strings"
)

// Entry is one code.
type Entry struct {
	// Code is stable. It is the anchor of the entry in the page.
	Code string
	// Names are the exported errors with this code, such as sqllock.ErrHeld.
	Names []string
	// Means says what happened, and what did not. Do says what to do.
	Means, Do string
}

// Find returns the entry of a code, or of the name of an error in Go, such as sqllock.ErrLost.
func Find(code string) (Entry, bool) {
	i := slices.IndexFunc(Entries, func(e Entry) bool { return e.Code == code || slices.Contains(e.Names, strings.TrimLeft(code, "*")) })
	if i < 0 {
		return Entry{}, false
	}
	return Entries[i], true
}

// Codes lists the codes.
func Codes() []string {
	codes := make([]string, len(Entries))
	for i, e := range Entries {
		codes[i] = e.Code
	}
	return codes
}

// Wrappers are errors without a code of their own: they say where another error happened, and have its
// code.
var Wrappers = []string{"optimistic.RowError", "register.WriteError", "reaper.TableError"}

// Known lists the codes and the names of the errors in Go.
func Known() []string {
	known := Codes()
	for _, e := range Entries {
		known = append(known, e.Names...)
	}
	return known
}

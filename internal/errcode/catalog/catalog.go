// Package catalog says what each error of Holdfast means and what to do. The page
// docs/reference/errors.md and holdfast explain are made from it.
package catalog

import "slices"

// Entry is one code.
type Entry struct {
	// Code is stable. It is the anchor of the entry in the page.
	Code string
	// Names are the exported errors with this code, such as sqllock.ErrHeld.
	Names []string
	// Means says what happened, and what did not. Do says what to do.
	Means, Do string
}

// Find returns the entry of a code.
func Find(code string) (Entry, bool) {
	i := slices.IndexFunc(Entries, func(e Entry) bool { return e.Code == code })
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

// Package display shows keys and names to people.
package display

import (
	"strconv"
	"strings"
)

// Text returns s as a person may see it: quoted if any character is not printable.
func Text(s string) string {
	if s == "" {
		return "-"
	}
	if q := strconv.Quote(s); q[1:len(q)-1] != s || strings.Contains(s, " ") {
		return q
	}
	return s
}

// Package operate has what the command and the console share: how keys and
// places are shown, and what an operation can be resolved as.
package operate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/sqllock"
)

// Text is a key or a name as people may be shown it: quoted where anything in it
// is not printed.
func Text(s string) string {
	if s == "" {
		return "-"
	}
	if q := strconv.Quote(s); q[1:len(q)-1] != s || strings.Contains(s, " ") {
		return q
	}
	return s
}

// Standing says in words what a place in a line is.
func Standing(line sqllock.Line, p sqllock.Place) string {
	does := "waits"
	if p.Held {
		does = "has"
	}
	switch {
	case line.Permits > 0:
		return fmt.Sprintf("%s %d of %d", does, p.Permits, line.Permits)
	case p.Permits == sqllock.MaxPermits:
		return does + " alone"
	}
	return does + " shared"
}

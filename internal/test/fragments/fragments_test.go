// Package fragments plays the well-known pieces of code for a lock, each in the schedule that breaks it, step by step,
// and then Holdfast in the same schedule. docs/why/neighbours.md lists them.
package fragments

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

// fragments has a test for each fragment of the page: breaks fails if the fragment does no harm, holds if Holdfast does.
var fragments = map[string]struct{ breaks, holds func(t *testing.T) }{
	"InsertThenDelete": {insertThenDelete, overtakenLease},
	"SetnxThenExpire":  {setnxThenExpire, abandonedLease},
	"GetsetTimestamp":  {getsetTimestamp, heldLease},
	"GetThenDel":       {getThenDel, overtakenLease},
	"ForgottenWriter":  {forgottenWriter, enforcedVersion},
	"RedlockPaused":    {redlockPaused, guardedLease},
	"UnguardedLease":   {unguardedLease, guardedLease},
}

func TestFragments(t *testing.T) {
	t.Parallel()
	for name, f := range fragments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("breaks", func(t *testing.T) { t.Parallel(); f.breaks(t) })
			t.Run("holds", func(t *testing.T) { t.Parallel(); f.holds(t) })
		})
	}
}

// TestPagesListTheFragments checks that each fragment of the page has a test, and each test its fragment.
func TestPagesListTheFragments(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("(?m)^\\pL+[:：] ?`TestFragments/(\\w+)`")
	section := regexp.MustCompile(`(?m)^### `)
	tests := slices.Sorted(maps.Keys(fragments))
	for _, page := range []string{"docs/why/neighbours.md", "docs/zh/why/neighbours.md"} {
		text, err := os.ReadFile("../../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		var listed []string
		for i, part := range section.Split(string(text), -1) {
			found := named.FindAllStringSubmatch(part, -1)
			if i > 0 && len(found) != 1 {
				t.Errorf("%s: fragment %d names %d tests, and should name one", page, i, len(found))
			}
			for _, m := range found {
				listed = append(listed, m[1])
			}
		}
		if slices.Sort(listed); !slices.Equal(listed, tests) {
			t.Errorf("%s lists %q, and the tests are %q", page, listed, tests)
		}
	}
}

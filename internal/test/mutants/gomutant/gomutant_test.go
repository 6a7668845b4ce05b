package gomutant

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestPlant checks which faults code gets, that they have names of their own, and that code with all of
// them compiles.
func TestPlant(t *testing.T) {
	t.Parallel()
	found, overlay, err := Plant(t.Context(), t.TempDir(), "./testdata/sample")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[string]bool{}
	for _, m := range found {
		_, function, _ := strings.Cut(m.Function, " ")
		got = append(got, function+" "+m.What)
		if ids[m.Function+m.ID] {
			t.Errorf("%s: %s again", m.Function, m.ID)
		}
		ids[m.Function+m.ID] = true
	}
	want := []string{
		"counter.take never: c.n+1 > limit", "counter.take always: c.n+1 > limit", "counter.take border: c.n+1 > limit", "counter.take arithmetic: c.n+1",
		"counter.take never: urgent", "counter.take always: urgent", "counter.take other: waiting", "counter.take no error: errLate",
		"counter.take missing: c.n++", "counter.take missing: defer func() { c.n -= 0 }()", "counter.take missing: c.n -= 0",
		"counter.take never: c.n == limit", "counter.take always: c.n == limit", "counter.take other: done", "counter.take other: done",
		"counter.take no error: check(c.n, limit)", "check border: n < limit", "check never: err != nil", "check no error: err",
		"ready never: n-2 >= 0", "ready always: n-2 >= 0", "ready border: n-2 >= 0", "ready arithmetic: n-2", "ready never: n != 7", "ready always: n != 7",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "mutants", "-overlay", overlay, "./testdata/sample").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

package migrations

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	got := split("-- it's; a comment\nA `;``;` 'x;''y' \";\";\n\nB -- c;\n + 1;\n-- end")
	want := []string{"A `;``;` 'x;''y' \";\"", "B \n + 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := split("A 'open;"); !slices.Equal(got, []string{"A 'open;"}) {
		t.Errorf("got %q", got)
	}
}

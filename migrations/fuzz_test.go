package migrations

import (
	"slices"
	"strings"
	"testing"
)

// FuzzSplit checks that a quoted text, such as the user's prefix of the tables, does not end a statement.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{``, `;`, `a;b`, `'`, `"`, "`", `-- `, "-- ;\n", `''`, `\`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, quote := range []string{`'`, `"`, "`"} {
			quoted := quote + strings.ReplaceAll(text, quote, quote+quote) + quote
			want := []string{`CREATE TABLE ` + quoted + ` (a int)`, `DROP TABLE ` + quoted}
			if got := split(want[0] + "; -- a comment;\n" + want[1] + ";\n"); !slices.Equal(got, want) {
				t.Fatalf("%q became %q", want, got)
			}
		}
		for _, s := range split(text) {
			if s == "" || strings.TrimSpace(s) != s {
				t.Fatalf("%q has the statement %q", text, s)
			}
		}
	})
}

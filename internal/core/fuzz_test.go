package core

import (
	"slices"
	"strings"
	"testing"
)

// FuzzOneStatement checks that a statement is found behind any other, and that a quoted text is none.
func FuzzOneStatement(f *testing.F) {
	for _, s := range []string{``, `SELECT 1`, `SELECT ';'`, "`;`", `";`, `/* ; */`, `-- ;`, `#`, `\`, `'\'`, `''`, "\x00", "\f;", "\v", "\u00a0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		verb, rest := Verb(text)
		if !strings.HasSuffix(strings.ToUpper(text), verb+strings.ToUpper(rest)) || strings.Trim(verb, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
			t.Fatalf("%q begins with %q, followed by %q", text, verb, rest)
		}
		for _, quote := range []string{`'`, `"`, "`"} {
			whole := `SELECT ` + quote + strings.ReplaceAll(text, quote, quote+quote) + quote
			if OneStatement(whole + `; COMMIT`) {
				t.Fatalf("%q hides a statement", whole)
			}
			plain := !strings.ContainsAny(text, `\#`) && !strings.Contains(text, "/*") && !strings.Contains(text, "--")
			if plain && !OneStatement(whole) {
				t.Fatalf("%q is refused", whole)
			}
		}
	})
}

// FuzzCompile checks that numbered parameters become question marks with their arguments in order, and that a
// quoted text stays as it is.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{``, `$1`, `$0`, `''`, `?`, `$`, `$99999999999999999999`, `"`, "`"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, quote := range []string{`'`, `"`, "`"} {
			quoted := quote + strings.ReplaceAll(text, quote, quote+quote) + quote
			s := Compile("n", `SELECT $2, `+quoted+`, $1 WHERE a = $0`, true)
			if want := `SELECT ?, ` + quoted + `, ? WHERE a = ?`; s.Text != want {
				t.Fatalf("%q: %s", text, s.Text)
			}
			if got := s.args([]any{"o", 1, 2}); !slices.Equal(got, []any{2, 1, "o"}) {
				t.Fatalf("%q: %v", text, got)
			}
			if got := Compile("n", `SELECT $2, `+quoted+`, $1 WHERE a = $0`, false).Text; got != `SELECT $3, `+quoted+`, $2 WHERE a = $1` {
				t.Fatalf("%q: %s", text, got)
			}
		}
	})
}

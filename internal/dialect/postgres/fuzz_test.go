package postgres

import (
	"strings"
	"testing"
)

// FuzzQualify checks that names of functions and catalogs are qualified once, and nothing within quotes is
// touched.
func FuzzQualify(f *testing.F) {
	for _, s := range []string{``, `count(*)`, `FROM pg_class`, `''`, `::text`, `"`, `'`, `now()`, "\x00", `pg_catalog.now()`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, quote := range []string{`'`, `"`} {
			quoted := quote + strings.ReplaceAll(text, quote, quote+quote) + quote
			sql := `SELECT count(*), ` + quoted + `, a::text FROM pg_class`
			want := `SELECT pg_catalog.count(*), ` + quoted + `, a::pg_catalog.text FROM pg_catalog.pg_class`
			if got := qualify(sql); got != want {
				t.Fatalf("%s became %s", sql, got)
			}
			if again := qualify(want); again != want {
				t.Fatalf("%s is qualified twice: %s", want, again)
			}
		}
	})
}

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
			sql := `SELECT count(*), encode(substr(a, 1), ` + quoted + `), a::text FROM pg_class`
			want := `SELECT pg_catalog.count(*), pg_catalog.encode(pg_catalog.substr(a, 1), ` + quoted + `), a::pg_catalog.text FROM pg_catalog.pg_class`
			if got := qualify(sql); got != want {
				t.Fatalf("%s became %s", sql, got)
			}
			if again := qualify(want); again != want {
				t.Fatalf("%s is qualified twice: %s", want, again)
			}
		}
	})
}

// A function within another one's parentheses is qualified, too, and what only looks like one is not.
func TestQualify(t *testing.T) {
	for text, want := range map[string]string{
		`upper(lower(left(a, 1)))`:           `pg_catalog.upper(pg_catalog.lower(pg_catalog.left(a, 1)))`,
		`NOW () - Max(b)`:                    `pg_catalog.NOW () - pg_catalog.Max(b)`,
		`a.count(*), "count"(*), account(1)`: `a.count(*), "count"(*), account(1)`,
		`COALESCE(text, 'now()')::text`:      `COALESCE(text, 'now()')::pg_catalog.text`,
		`x::xid8, x::texts, text`:            `x::pg_catalog.xid8, x::texts, text`,
		"FROM\n pg_class JOIN pg_class c":    "FROM\n pg_catalog.pg_class JOIN pg_catalog.pg_class c",
		`FROM pg_catalog.pg_class, pg_x`:     `FROM pg_catalog.pg_class, pg_x`,
		`pg_sleep(1), 'it''s now()', now()`:  `pg_catalog.pg_sleep(1), 'it''s now()', pg_catalog.now()`,
		`FROM (SELECT max(a)) pg_x`:          `FROM (SELECT pg_catalog.max(a)) pg_x`,
		`"a""b".now(), 'open now()`:          `"a""b".now(), 'open pg_catalog.now()`,
	} {
		if got := qualify(text); got != want {
			t.Errorf("%s\nbecame  %s\nwant    %s", text, got, want)
		}
	}
}

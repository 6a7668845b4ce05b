package hostile

import (
	"strings"
	"unicode/utf8"
)

// Key is a key with quotes, backslashes, NUL and bytes that are not UTF-8. One of these bytes
// starts a character of two bytes in some encodings, which then contains the quote after it.
const Key = `it's "\` + "\\' \xbf' \x00\xff"

// Markup would run as a script in a page that does not escape it.
const Markup = `"'></textarea><script>alert(1)</script>`

// Strings returns values that would run as SQL in a statement built by concatenation. They use the
// quotes of each engine and those of Holdfast's own templates. Tests of every entry use this list.
func Strings() []string {
	return []string{
		`'; DROP TABLE canary; --`, `"; DROP TABLE canary; --`, "`; DROP TABLE canary; -- ", `\'; DELETE FROM canary; -- `, `') ; DELETE FROM canary WHERE ('1'='1`,
		`' OR '1'='1`, `1; DELETE FROM canary`, `$$; DELETE FROM canary; $$`, `$1`, `?`, `:a @a @@version`, `%_\`, `%s%[1]d`,
		`{now}{records}{staged}{locks}{names}{table}`, `/*! DELETE FROM canary */`, `U&'\0027`, "\u02bc OR 1=1 --", "\xbf' OR 1=1 --", "a\x00'; DROP TABLE canary; --",
		"\n; DELETE FROM canary; --\n",
	}
}

// plain reports whether a human-readable name may have this text.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

package postgres

import "strings"

// The objects of pg_catalog that the statements use, besides those whose names begin with pg_.
// Keywords of SQL (COALESCE, bigint, POSITION) always refer to the catalog.
var (
	functions = words(`age array_to_string clock_timestamp count current_database current_schemas current_setting date_part decode encode
		format_type generate_series left length lower lpad max min now octet_length quote_ident quote_literal set_config string_agg string_to_array
		substr sum to_hex to_regclass to_char to_regproc to_timestamp trunc unnest upper uuid_send version`)
	types = words(`text bytea regclass regproc timestamptz oid name uuid date jsonb xid xid8`)
)

const (
	catalog = "pg_catalog."
	space   = " \t\n\r\f"
)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		m[w] = true
	}
	return m
}

// qualify adds the schema to each function, type and catalog in text, so that an object of the
// same name in another schema of the session's search path is never used. Quoted names and string
// literals may contain any text, and are left alone.
func qualify(text string) string {
	var b strings.Builder
	before := "" // the word before, if only white space is between
	done := 0    // what of text is written
	for at := 0; at < len(text); {
		switch c := text[at]; {
		case c == '"' || c == '\'':
			at += quoted(text[at:])
			before = ""
		case isWord(c):
			end := at + wordEnd(text[at:])
			if ofCatalog(before, text, at, end) {
				b.WriteString(text[done:at])
				b.WriteString(catalog)
				done = at
			}
			before, at = text[at:end], end
		default:
			if !isSpace(c) {
				before = ""
			}
			at++
		}
	}
	b.WriteString(text[done:])
	return b.String()
}

// ofCatalog reports whether the word text[at:end], after the word before, refers to the catalog.
func ofCatalog(before, text string, at, end int) bool {
	word := text[at:end]
	if strings.HasSuffix(text[:at], "::") {
		return types[word]
	}
	if at > 0 && strings.IndexByte(`."'`, text[at-1]) >= 0 {
		return false
	}
	lower := strings.ToLower(word)
	ours := len(lower) > len("pg_") && strings.HasPrefix(lower, "pg_")
	rest := strings.TrimLeft(text[end:], space)
	if strings.HasPrefix(rest, "(") {
		return ours || functions[lower]
	}
	from := strings.EqualFold(before, "FROM") || strings.EqualFold(before, "JOIN")
	return ours && from && !strings.HasPrefix(text[end:], ".")
}

// quoted returns the length of the quoted name or literal at the beginning of text: two quotes in it
// are one. It is 1 if there is no end.
func quoted(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != text[0]:
		case i+1 < len(text) && text[i+1] == text[0]:
			i++
		default:
			return i + 1
		}
	}
	return 1
}

func wordEnd(text string) (n int) {
	for n < len(text) && isWord(text[n]) {
		n++
	}
	return n
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isSpace(c byte) bool { return strings.IndexByte(space, c) >= 0 }

package postgres

import (
	"regexp"
	"strings"
)

// These match the objects of pg_catalog that the statements use. Keywords of SQL (COALESCE,
// bigint, POSITION) always refer to the catalog.
var (
	functions = regexp.MustCompile(`(?i)(^|[^\w."'])(age|array_to_string|clock_timestamp|count|current_database|current_schemas|current_setting|date_part|decode|encode|` +
		`format_type|generate_series|left|length|lower|lpad|max|min|now|octet_length|pg_\w+|quote_ident|quote_literal|set_config|string_agg|string_to_array|substr|` +
		`sum|to_hex|to_regclass|to_char|to_regproc|to_timestamp|trunc|unnest|upper|uuid_send|version)(\s*\()`)
	casts    = regexp.MustCompile(`::(text|bytea|regclass|regproc|timestamptz|oid|name|uuid|date|jsonb|xid|xid8)\b`)
	catalogs = regexp.MustCompile(`(?i)\b(FROM|JOIN)(\s+)(pg_\w+)([^\w.]|$)`)
	// quoted matches a quoted name or a string literal, which may contain any text.
	quoted = regexp.MustCompile(`"(?:[^"]|"")*"|'(?:[^']|'')*'`)
)

// qualify adds the schema to each function, type and catalog in text, so that an object of the
// same name in another schema of the session's search path is never used.
func qualify(text string) string {
	var b strings.Builder
	end := 0
	for _, at := range quoted.FindAllStringIndex(text, -1) {
		b.WriteString(qualified(text[end:at[0]]))
		b.WriteString(text[at[0]:at[1]])
		end = at[1]
	}
	b.WriteString(qualified(text[end:]))
	return b.String()
}

func qualified(sql string) string {
	sql = functions.ReplaceAllString(sql, "${1}pg_catalog.$2$3")
	sql = catalogs.ReplaceAllString(sql, "${1}${2}pg_catalog.$3$4")
	return casts.ReplaceAllString(sql, "::pg_catalog.$1")
}

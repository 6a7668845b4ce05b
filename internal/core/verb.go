package core

import "strings"

// Verb returns the first word of a statement of MySQL or MariaDB, in upper case, and the text behind it.
// It passes over comments, but not over those that the server runs.
func Verb(query string) (verb, rest string) {
	for {
		query = strings.TrimLeft(query, " \t\r\n(")
		switch {
		case strings.HasPrefix(query, "/*") && !strings.HasPrefix(query, "/*!") && !strings.HasPrefix(query, "/*M!"):
			_, query, _ = strings.Cut(query, "*/")
			continue
		case strings.HasPrefix(query, "#"), strings.HasPrefix(query, "-- "), strings.HasPrefix(query, "--\t"), strings.HasPrefix(query, "--\n"):
			_, query, _ = strings.Cut(query, "\n")
			continue
		}
		end := strings.IndexFunc(query, func(r rune) bool { return r < 'A' || r > 'Z' && r < 'a' || r > 'z' })
		if end < 0 {
			end = len(query)
		}
		return strings.ToUpper(query[:end]), query[end:]
	}
}

// OneStatement reports whether a text surely has no second statement. It is false for some that have none.
func OneStatement(query string) bool {
	query = strings.TrimRight(query, "; \t\r\n")
	if !strings.Contains(query, ";") {
		return true
	}
	if strings.ContainsAny(query, "\\#") || strings.Contains(query, "/*") || strings.Contains(query, "--") {
		return false // where a quoted part ends is not so plain
	}
	quote := rune(0)
	for _, c := range query {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case c == ';':
			return false
		}
	}
	return quote == 0
}

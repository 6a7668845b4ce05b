package migrations

import "strings"

// split cuts a file into statements, at the semicolons outside of quotes and comments,
// and drops the comments.
func split(file string) []string {
	var out []string
	var b strings.Builder
	flush := func() {
		if s := strings.TrimSpace(b.String()); s != "" {
			out = append(out, s)
		}
		b.Reset()
	}
	for i := 0; i < len(file); i++ {
		switch c := file[i]; {
		case c == '`' || c == '\'' || c == '"':
			// A doubled quote ends one quoted text and begins the next.
			n := strings.IndexByte(file[i+1:], c) + 2
			if n < 2 {
				n = len(file) - i
			}
			b.WriteString(file[i : i+n])
			i += n - 1
		case strings.HasPrefix(file[i:], "-- "):
			n := strings.IndexByte(file[i:], '\n')
			if n < 0 {
				n = len(file) - i
			}
			i += n - 1
		case c == ';':
			flush()
		default:
			b.WriteByte(c)
		}
	}
	flush()
	return out
}

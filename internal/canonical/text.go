package canonical

import (
	"bytes"
	"cmp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape decodes the escape at the beginning of b. It returns the character and the length
// of the escape. The character is U+FFFD for half a surrogate pair.
func unescape(b []byte) (r rune, n int) {
	switch b[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = unit(b)
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
			if pair := utf16.DecodeRune(r, unit(b[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return utf8.RuneError, 6
	}
	return rune(b[1]), 2 // a quote, a slash, a backslash
}

// unit returns the code unit of \uXXXX.
func unit(b []byte) rune {
	code, _ := strconv.ParseUint(string(b[2:6]), 16, 16) // the JSON is valid
	return rune(code)
}

// decoded returns the text of a string with its escapes decoded.
func decoded(b []byte) []byte {
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		if b[i] != '\\' {
			out = append(out, b[i])
			i++
			continue
		}
		r, n := unescape(b[i:])
		out = utf8.AppendRune(out, r)
		i += n
	}
	return out
}

// short maps characters to their escapes of two bytes.
var short = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

// escaped reports whether JSON has to escape a character.
func escaped(r rune) bool { return r < ' ' || r == '"' || r == '\\' }

// compare orders two texts by their UTF-16 code units. That is the order of their bytes, but for
// characters above U+FFFF: their surrogates come before U+E000.
func compare(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] == b[i] {
			continue
		}
		const afterSurrogates, surrogates = 0xEE, 0xF0 // the first bytes of U+E000 and U+10000
		switch {
		case a[i] >= surrogates && b[i] >= afterSurrogates && b[i] < surrogates:
			return -1
		case b[i] >= surrogates && a[i] >= afterSurrogates && a[i] < surrogates:
			return 1
		}
		return cmp.Compare(a[i], b[i])
	}
	return cmp.Compare(len(a), len(b))
}

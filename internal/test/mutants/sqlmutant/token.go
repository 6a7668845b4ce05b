package sqlmutant

import (
	"strings"
)

// token is a part of a statement's text: text[from:to].
type token struct {
	from, to int
	word     string // in upper case; the text itself for what is no word
}

// scan splits text into tokens. Quoted names and strings are one token each.
func scan(text string) []token {
	var all []token
	for i := 0; i < len(text); {
		n := length(text[i:])
		if c := text[i]; c != ' ' && c != '\n' && c != '\t' {
			word := text[i : i+n]
			if isLetter(c) {
				word = strings.ToUpper(word)
			}
			all = append(all, token{i, i + n, word})
		}
		i += n
	}
	return all
}

// length returns the length of the token at the start of text.
func length(text string) int {
	switch c := text[0]; {
	case c == '\'' || c == '"' || c == '`':
		if end := strings.IndexByte(text[1:], c); end >= 0 {
			return end + 2
		}
		return len(text)
	case isLetter(c) || c == '$' || c == '@' || c >= '0' && c <= '9':
		n := 1
		for n < len(text) && (isLetter(text[n]) || text[n] >= '0' && text[n] <= '9' || text[n] == '$') {
			n++
		}
		return n
	}
	for _, operator := range []string{"<=>", "<=", ">=", "<>", "!=", "::", "||", "->>", "->"} {
		if strings.HasPrefix(text, operator) {
			return len(operator)
		}
	}
	return 1
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// closing returns the index of the parenthesis that closes the one at open, or of the END of a CASE.
func closing(all []token, open int) int {
	depth := 0
	for i := open; i < len(all); i++ {
		switch all[i].word {
		case "(", "CASE":
			depth++
		case ")", "END":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(all) - 1
}

// span is a range of tokens: [from, to).
type span struct{ from, to int }

// split cuts a range at each token that is word, outside of parentheses and of CASE. The AND of a
// BETWEEN is no border.
func split(all []token, s span, word string) []span {
	var out []span
	between := false
	from := s.from
	for i := s.from; i < s.to; i++ {
		switch w := all[i].word; {
		case w == "(" || w == "CASE":
			i = closing(all, i)
		case w == "BETWEEN":
			between = true
		case w == word && between && word == "AND":
			between = false
		case w == word:
			out = append(out, span{from, i})
			from = i + 1
		}
	}
	return append(out, span{from, s.to})
}

// clause returns the range from the token at from to the next word of ends at its depth, or to the
// parenthesis that closes around it.
func clause(all []token, from int, ends string) span {
	for i := from; i < len(all); i++ {
		switch w := all[i].word; {
		case w == "(" || w == "CASE":
			i = closing(all, i)
		case w == ")" || w == "END" || w == ";" || strings.Contains(ends, " "+w+" "):
			return span{from, i}
		}
	}
	return span{from, len(all)}
}

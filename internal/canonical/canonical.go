// Package canonical writes JSON in the form of RFC 8785 (JCS): members sorted by their UTF-16 code
// units, no white space, numbers laid out as ECMAScript lays out doubles, and text with as few
// escapes as JSON allows. There is one difference: a number keeps all its decimal digits, so that
// numbers which one double stands for stay different. What RFC 8785 leaves to the reader: of
// repeated members the last counts. Time and memory are linear in the length of any text.
package canonical

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math"
	"sync"
	"unicode/utf8"
)

var (
	// ErrSyntax means that a text is not valid JSON, or is larger than 2 GiB.
	ErrSyntax = errors.New("it is no JSON")

	// ErrNumber means that a number is beyond the range of a double, as RFC 8785 refuses it, or
	// nearer to zero than 1e-9999.
	ErrNumber = errors.New("it has a number that is too large or too small")

	// ErrText means that a decoder would read U+FFFD in place of something else, so that two
	// different texts would become equal. The causes are bytes that are not UTF-8, half a
	// surrogate pair, and the escape that encoding/json writes for invalid UTF-8.
	ErrText = errors.New("it has text that is not UTF-8")
)

// Write writes text to w in its canonical form. After an error, w may have received a part of it.
//
// Errors: [ErrSyntax], [ErrText], [ErrNumber], and errors of w.
func Write(w io.Writer, text []byte) error {
	switch {
	case len(text) > math.MaxInt32 || !json.Valid(text): // Valid also bounds the depth of nesting
		return ErrSyntax
	case !utf8.Valid(text):
		return ErrText
	}
	objects, members := count(text)
	p := parser{text: text, objects: make([]object, 0, objects), members: make([]member, 0, members)}
	switch p.value(p.skip(0)); {
	case p.broken:
		return ErrText
	case p.large:
		return ErrNumber
	}
	out := writers.Get().(*bufio.Writer) //nolint:forcetypeassert // the pool has nothing else
	defer writers.Put(out)
	out.Reset(w)
	e := emitter{parser: &p, w: out, sorted: make([]int32, 0, members)}
	e.value(p.skip(0), 0)
	return out.Flush()
}

var writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}

// count returns upper bounds for the numbers of objects and members.
func count(text []byte) (objects, members int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '{':
			objects++
		case !quoted && c == ':':
			members++
		}
	}
	return objects, members
}

// object is one object of the text. Objects are stored in the order in which they begin.
type object struct {
	end   int32 // the position after the object
	first int32 // the index of its first member, or none
	next  int32 // the index of the object that begins after it
}

// member is one member of an object.
type member struct {
	key    []byte // the decoded key
	start  int32  // the start of its value
	object int32  // the index of the first object that begins in its value, if any
	next   int32  // the next member of the same object
}

const none = -1

// parser finds the members of every object. The text must be valid JSON.
type parser struct {
	text    []byte
	objects []object
	members []member
	broken  bool // by text that a decoder would read as U+FFFD
	large   bool // a number is too large for a double, or too small
	digits  [32]byte
}

func (p *parser) skip(i int) int {
	for i < len(p.text) && (p.text[i] == ' ' || p.text[i] == '\t' || p.text[i] == '\n' || p.text[i] == '\r') {
		i++
	}
	return i
}

// value parses the value at i and returns its end.
func (p *parser) value(i int) int {
	switch p.text[i] {
	case '{':
		return p.object(i)
	case '[':
		for i = p.skip(i + 1); p.text[i] != ']'; {
			i = p.comma(p.value(i))
		}
		return i + 1
	case '"':
		return p.string(i)
	}
	end := p.scalar(i)
	p.number(p.text[i:end])
	return end
}

func (p *parser) object(i int) int {
	at, last := len(p.objects), int32(none)
	p.objects = append(p.objects, object{first: none})
	for i = p.skip(i + 1); p.text[i] != '}'; {
		end := p.string(i)
		m := member{key: decoded(p.text[i+1 : end-1]), object: index(len(p.objects)), next: none}
		i = p.skip(p.skip(end) + 1) // after the colon
		m.start = index(i)
		if last == none {
			p.objects[at].first = index(len(p.members))
		} else {
			p.members[last].next = index(len(p.members))
		}
		last = index(len(p.members))
		p.members = append(p.members, m)
		i = p.comma(p.value(i))
	}
	p.objects[at].end, p.objects[at].next = index(i+1), index(len(p.objects))
	return i + 1
}

// index converts n, which is less than 2 GiB, like the length of the text.
func index(n int) int32 { return int32(n) } //nolint:gosec // it cannot overflow

// comma skips a comma and the white space between two elements.
func (p *parser) comma(i int) int {
	if i = p.skip(i); p.text[i] == ',' {
		i = p.skip(i + 1)
	}
	return i
}

// scalar returns the end of a number, true, false or null.
func (p *parser) scalar(i int) int {
	for ; i < len(p.text); i++ {
		switch p.text[i] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return i
		}
	}
	return i
}

// string returns the end of the string at i, and marks the text as broken if an escape decodes
// to U+FFFD.
func (p *parser) string(i int) int {
	for i++; p.text[i] != '"'; {
		if p.text[i] != '\\' {
			i++
			continue
		}
		r, n := unescape(p.text[i:])
		p.broken = p.broken || r == utf8.RuneError
		i += n
	}
	return i + 1
}

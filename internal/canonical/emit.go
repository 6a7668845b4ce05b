package canonical

import (
	"bufio"
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"
)

// emitter writes the parsed text.
type emitter struct {
	*parser
	w      *bufio.Writer // stores the first error
	sorted []int32       // the members of the objects in progress
	out    []byte        // of a number; used again
}

// value writes the value at i. objects[o] is the first object that begins in the value or
// after it. value returns the end of the value, and the index of the next object.
func (e *emitter) value(i int, o int32) (int, int32) {
	switch e.text[i] {
	case '{':
		e.object(&e.objects[o])
		return int(e.objects[o].end), e.objects[o].next
	case '[':
		return e.array(i, o)
	case '"':
		end := e.string(i)
		e.quote(e.text[i+1:end-1], true)
		return end, o
	}
	end := e.scalar(i)
	e.number(e.text[i:end])
	return end, o
}

func (e *emitter) array(i int, o int32) (int, int32) {
	_ = e.w.WriteByte('[')
	i = e.skip(i + 1)
	for first := true; e.text[i] != ']'; first = false {
		if !first {
			_ = e.w.WriteByte(',')
		}
		i, o = e.value(i, o)
		i = e.comma(i)
	}
	_ = e.w.WriteByte(']')
	return i + 1, o
}

func (e *emitter) object(obj *object) {
	from := len(e.sorted)
	for m := obj.first; m != none; m = e.members[m].next {
		e.sorted = append(e.sorted, m)
	}
	to := len(e.sorted)
	slices.SortFunc(e.sorted[from:to], func(a, b int32) int {
		return cmp.Or(compare(e.members[a].key, e.members[b].key), cmp.Compare(a, b))
	})
	_ = e.w.WriteByte('{')
	first := true
	for at := from; at < to; at++ {
		m := &e.members[e.sorted[at]]
		if at+1 < to && bytes.Equal(m.key, e.members[e.sorted[at+1]].key) {
			continue // a later member with the same key replaces it
		}
		if !first {
			_ = e.w.WriteByte(',')
		}
		first = false
		e.quote(m.key, false)
		_ = e.w.WriteByte(':')
		e.value(int(m.start), m.object)
	}
	_ = e.w.WriteByte('}')
	e.sorted = e.sorted[:from]
}

// quote writes a string. b is its content, with escapes or decoded.
func (e *emitter) quote(b []byte, escapes bool) {
	_ = e.w.WriteByte('"')
	same := 0 // the bytes from here on are written unchanged
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		inEscape := escapes && r == '\\'
		if inEscape {
			r, n = unescape(b[i:])
		}
		if inEscape || escaped(r) {
			_, _ = e.w.Write(b[same:i])
			e.char(r)
			same = i + n
		}
		i += n
	}
	_, _ = e.w.Write(b[same:])
	_ = e.w.WriteByte('"')
}

// char writes a character, escaped if JSON has to.
func (e *emitter) char(r rune) {
	const hex = "0123456789abcdef"
	switch s := short[r]; {
	case s != "":
		_, _ = e.w.WriteString(s)
	case escaped(r): // these are below U+10000
		_, _ = e.w.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			_ = e.w.WriteByte(hex[r>>shift&15])
		}
	default:
		_, _ = e.w.WriteRune(r)
	}
}

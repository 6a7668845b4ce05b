package pgxtest

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
)

// message is one of PostgreSQL's protocol, with its kind and its length.
type message []byte

func (m message) kind() byte { return m[0] }

func (m message) body() []byte { return m[head:] }

const head = 5

func newMessage(kind byte, body string) message {
	m := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+head-1)) //nolint:gosec // a short text
	return append(m, body...)
}

func query(text string) message { return newMessage('Q', text+"\x00") }

func parse(name, text string) message { return newMessage('P', name+"\x00"+text+"\x00\x00\x00") }

// run are the messages that run a prepared statement without arguments.
func run(name string) []message {
	return []message{
		newMessage('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00"),
		newMessage('E', "\x00\x00\x00\x00\x00"),
		syncNow,
	}
}

var syncNow = newMessage('S', "")

// next returns the first message of b, if it is whole, and what follows.
func next(b []byte) (message, []byte) {
	if len(b) < head {
		return nil, b
	}
	n := int(binary.BigEndian.Uint32(b[1:])) + 1
	if len(b) < n {
		return nil, b
	}
	return b[:n:n], b[n:]
}

// cut returns the messages up to the first one that the server answers, or that stands alone.
func cut(b []byte) (round []message, rest []byte) {
	for rest = b; ; {
		var m message
		if m, rest = next(rest); m == nil {
			return nil, b
		}
		round = append(round, m)
		if !strings.ContainsRune("PBDEC", rune(m.kind())) {
			return round, rest
		}
	}
}

// answer is what the server sends.
type answer struct {
	part     []byte
	complete bool          // the last message that came ends an answer
	pid      atomic.Uint32 // of the session
}

func (a *answer) add(b []byte) (all []message) {
	a.part = append(a.part, b...)
	for {
		m, rest := next(a.part)
		if m == nil {
			a.part = bytes.Clone(rest)
			return all
		}
		a.part = rest
		all = append(all, m)
	}
}

// texts are the prepared statements of a session.
type texts map[string]string

// said is what a round trip runs.
type said struct {
	answered bool
	point    bool
	what     string
	commits  bool
	alone    bool // the COMMIT
	victim   int  // the first message of the statement that fails, if one does
}

func (t texts) of(round []message) (s said) {
	last := round[len(round)-1].kind()
	if s.answered = last == 'Q' || last == 'S'; !s.answered {
		return s
	}
	var bound string
	var all []string
	begins := 0 // that message a statement
	add := func(text string) {
		switch {
		case control(text):
			return
		case commits(text):
			s.commits = true
		default:
			all = append(all, text)
		}
		if !s.point {
			s.point, s.victim = true, begins
		}
	}
	for i, m := range round {
		fields := strings.SplitN(string(m.body()), "\x00", 3)
		switch m.kind() {
		case 'P':
			t[fields[0]] = fields[1]
		case 'B':
			bound = t[fields[1]]
		case 'E':
			add(bound)
			begins = i + 1
		case 'Q':
			add(fields[0])
		}
	}
	s.what, s.alone = strings.Join(all, "; "), len(all) == 0
	switch {
	case s.commits && s.alone:
		s.what = "COMMIT"
	case s.commits:
		s.what = "COMMIT with " + s.what
	}
	return s
}

// control reports whether a statement changes nothing, wherever the process dies: it begins a transaction, rolls it
// back, listens, or is the ping of a pool.
func control(text string) bool {
	text = trimmed(text)
	word, _, _ := strings.Cut(text, " ")
	switch word {
	case "begin":
		return !strings.Contains(text, ";")
	case "listen", "unlisten", "":
		return true
	}
	return text == "rollback" || text == "-- ping"
}

func commits(text string) bool {
	text = trimmed(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, ';')+1:]) == "commit"
}

func trimmed(text string) string { return strings.ToLower(strings.Trim(text, "; \t\r\n")) }

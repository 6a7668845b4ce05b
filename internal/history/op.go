package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Stamp is a moment: the time since some moment that is the same for all
// processes of a machine until it restarts.
type Stamp = time.Duration

// Now is the present moment.
func Now() Stamp { return now() }

// A Kind says what an operation did.
type Kind string

// The kinds of operations. The first five belong to a lease, the last three to
// a register.
const (
	KindGrant   Kind = "grant"
	KindRelease Kind = "release"
	KindRenew   Kind = "renew"
	KindCommit  Kind = "commit"
	KindEnded   Kind = "ended"
	KindRead    Kind = "read"
	KindWrite   Kind = "write"
	KindSwap    Kind = "swap"

	kindLapse Kind = "lapse" // derived: from when on a holder may have trusted no more
)

// An Outcome says how an operation ended. The zero Outcome is that nobody
// knows.
type Outcome string

// The outcomes of operations.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // held by somebody; or a swap that found another value
	Lost    Outcome = "lost"    // the term is over
	Failed  Outcome = "failed"  // surely did nothing
)

// An Op is one operation of one client, or, of kind [KindEnded], the time
// between the last sight of a living context and the sight of its end.
type Op struct {
	ID      int     `json:"id"`
	Process int     `json:"process,omitempty"` // which of the merged histories it is from
	Client  int     `json:"client"`
	Kind    Kind    `json:"kind"`
	Key     Key     `json:"key"`
	Call    Stamp   `json:"call"`
	Return  Stamp   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	Token   int64   `json:"token,omitempty"`
	Until   Stamp   `json:"until,omitempty"`  // the end of the trust window that a grant or renewal told
	Expect  string  `json:"expect,omitempty"` // what a swap compares with
	Value   string  `json:"value,omitempty"`  // what was read or is written
}

// A History is a set of operations, in any order.
type History []Op

// Merge makes one history of those of several processes of one machine.
func Merge(histories ...History) History {
	var all History
	for process, h := range histories {
		for _, op := range h {
			op.Process = process
			all = append(all, op)
		}
	}
	return all
}

// keys are those of h in order of their first appearance, each with its
// operations; operations that surely did nothing are left out.
func (h History) keys() (keys []Key, ops map[Key]History) {
	ops = make(map[Key]History)
	for _, op := range h {
		if op.Outcome == Failed {
			continue
		}
		if _, ok := ops[op.Key]; !ok {
			keys = append(keys, op.Key)
		}
		ops[op.Key] = append(ops[op.Key], op)
	}
	return keys, ops
}

// span is the time from the first call to the last stamp.
func (h History) span() (first, last Stamp) {
	for i, op := range h {
		if i == 0 || op.Call < first {
			first = op.Call
		}
		last = max(last, op.Call, op.Return, op.Until)
	}
	return first, last
}

// text lists operations with times relative to since, in order of their calls.
func (h History) text(since Stamp) string {
	ops := slices.Clone(h)
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	var s strings.Builder
	for _, op := range ops {
		s.WriteString("\n  " + op.text(since))
	}
	return s.String()
}

func (op Op) text(since Stamp) string {
	end := "open"
	if op.Return != 0 {
		end = (op.Return - since).String()
	}
	s := fmt.Sprintf("[%v, %s] client %d", op.Call-since, end, op.Client)
	if op.Process != 0 {
		s += fmt.Sprintf(" of process %d", op.Process)
	}
	s += ": " + op.describe()
	if op.Until != 0 {
		s += fmt.Sprintf(", valid until %v", op.Until-since)
	}
	return s
}

// describe says what was done and answered.
func (op Op) describe() string {
	s := string(op.Kind)
	switch op.Kind {
	case KindRead:
		return fmt.Sprintf("read -> %q", op.Value)
	case KindWrite:
		s = fmt.Sprintf("write %q", op.Value)
	case KindSwap:
		s = fmt.Sprintf("swap %q for %q", op.Expect, op.Value)
	case kindLapse:
		return fmt.Sprintf("trust in token %d ends, not before", op.Token)
	default:
		if op.Token != 0 {
			s += fmt.Sprintf(" of token %d", op.Token)
		}
	}
	if op.Outcome == "" {
		return s + " -> unknown"
	}
	return s + " -> " + string(op.Outcome)
}

// A Key is any bytes. In a file it is escaped as in a Go string, because JSON
// would turn bytes that are not UTF-8 into one another.
type Key string

// MarshalText escapes the key.
func (k Key) MarshalText() ([]byte, error) {
	q := strconv.Quote(string(k))
	return []byte(q[1 : len(q)-1]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (k *Key) UnmarshalText(text []byte) error {
	s, err := strconv.Unquote(`"` + string(text) + `"`)
	if err != nil {
		return fmt.Errorf("history: key %q: %w", text, err)
	}
	*k = Key(s)
	return nil
}

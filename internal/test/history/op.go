package history

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Stamp is a moment, measured from a moment that is the same for all processes of a machine
// until it restarts.
type Stamp = time.Duration

// Now returns the current moment.
func Now() Stamp { return now() }

// A Kind is the kind of an operation.
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

	kindLapse Kind = "lapse" // derived: the earliest time from which a holder may no longer trust
)

// An Outcome is how an operation ended. The zero Outcome means unknown.
type Outcome string

// The outcomes of operations.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // held by another client; or a swap that found another value
	Lost    Outcome = "lost"    // the term is over
	Failed  Outcome = "failed"  // certainly did nothing
)

// An Op is one operation of one client. An Op of kind [KindEnded] is the time between the last
// moment at which the context was seen alive and the moment at which its end was seen.
type Op struct {
	ID      int     `json:"id"`
	Process int     `json:"process,omitempty"` // the number of its history among the merged ones
	Client  int     `json:"client"`
	Kind    Kind    `json:"kind"`
	Key     Key     `json:"key"`
	Call    Stamp   `json:"call"`
	Return  Stamp   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	Token   int64   `json:"token,omitempty"`
	Until   Stamp   `json:"until,omitempty"`  // the end of the trust window that a grant or renewal returned
	Units   int     `json:"units,omitempty"`  // how much of the capacity a grant takes, 0 is all; see [Room]
	Expect  string  `json:"expect,omitempty"` // the value that a swap compares with
	Value   string  `json:"value,omitempty"`  // the value read or written
}

// A History is a set of operations, in any order.
type History []Op

// Merge combines the histories of several processes of one machine.
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

// keys returns the keys of h in order of their first appearance, each with its operations. It
// leaves out operations that certainly did nothing.
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

// span returns the times of the first call and of the last stamp.
func (h History) span() (first, last Stamp) {
	for i, op := range h {
		if i == 0 || op.Call < first {
			first = op.Call
		}
		last = max(last, op.Call, op.Return, op.Until)
	}
	return first, last
}

// text lists operations in order of their calls, with times relative to since.
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

// describe returns a text with the operation and its outcome.
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

// A Key is any bytes. In a file it is escaped as in a Go string, because JSON would map
// different bytes that are not UTF-8 to the same text.
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

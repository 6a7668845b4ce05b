package history

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// An Option changes what is checked.
type Option func(*options)

type options struct {
	timeout    time.Duration
	tokensOnly bool
	capacity   int
	refusals   bool
	outside    []Span
}

func optionsOf(opts []Option) options {
	o := options{timeout: time.Minute, refusals: true}
	for _, set := range opts {
		set(&o)
	}
	return o
}

// Timeout bounds the search for an order of each key's operations; the default is a minute. A
// search that takes longer is a failure.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// TokensOnly checks only that the tokens of leases increase: for locks with several holders, and
// for histories with forced releases or stopped processes.
func TokensOnly() Option { return func(o *options) { o.tokensOnly = true } }

// Room checks locks with several holders: tokens increase, and the units held never exceed
// capacity. Units are held from each grant until its holder no longer trusts it, and, where the
// release succeeded, until the call of the release, regardless of the clock.
func Room(capacity int) Option { return func(o *options) { o.capacity = capacity } }

// AnyRefusal accepts a refused attempt without a holder: for locks that may treat another
// attempt as a holder.
func AnyRefusal() Option { return func(o *options) { o.refusals = false } }

// A Span is a time in which the assumption of a holder's trust does not hold: its process is
// stopped, or the database's clock steps forward.
type Span struct {
	Process  int // as [Merge] numbers them; [Everybody] means all
	From, To Stamp
	// Bounded promises that a trust which begins before the span's end ends in the span, if another
	// holder was granted the lease: one that goes on beyond To is judged as if there were no span.
	Bounded bool
}

// Everybody is the process of a span that affects all processes.
const Everybody = -1

// Outside does not judge a holder's trust beyond the beginning of a span if its lease was
// granted before or during the span: exclusion is not promised then. It still judges everything
// else: tokens, releases, renewals and guarded commits.
func Outside(spans ...Span) Option {
	return func(o *options) { o.outside = append(o.outside, spans...) }
}

// Check fails the test for each rule that a key's operations break, and reports the
// contradicting operations. It writes the operations of the key (readable by [Read]) and
// porcupine's picture of them to the directory HOLDFAST_TEST_ARTIFACTS, or to a temporary
// directory.
func Check(t testing.TB, h History, opts ...Option) {
	t.Helper()
	since, _ := h.span()
	_, ops := h.keys()
	kept := make(map[string]bool)
	for _, v := range Judge(h, opts...) {
		t.Errorf("history: key %q: %s: %s%s", v.Key, v.Rule, v.Text, v.Ops.text(since))
		if !kept[v.Key] {
			kept[v.Key] = true
			keep(t, v, ops[Key(v.Key)])
		}
	}
}

// Judge returns the rules that the history breaks.
func Judge(h History, opts ...Option) []Violation {
	o := optionsOf(opts)
	keys, all := h.keys()
	var found []Violation
	for _, key := range keys {
		for _, v := range o.judge(all[key]) {
			v.Key = string(key)
			found = append(found, v)
		}
	}
	return found
}

func (o options) judge(ops History) []Violation {
	leases, registers := split(ops)
	l := leaseOf(leases)
	l.outside(o.outside)
	if o.capacity > 0 {
		return append(l.tokenOrder(), l.room(o.capacity)...)
	}
	if o.tokensOnly {
		return append(l.tokenOrder(), o.search(registerModel(), registerSteps(registers))...)
	}
	if !o.refusals {
		l.refused = nil
	}
	found := l.violations()
	if len(found) == 0 {
		found = o.search(leaseModel(), l.steps())
	}
	return append(found, o.search(registerModel(), registerSteps(registers))...)
}

// split separates the operations of leases and of registers under the same key.
func split(ops History) (leases, registers History) {
	for _, op := range ops {
		switch op.Kind {
		case KindRead, KindWrite, KindSwap:
			registers = append(registers, op)
		default:
			leases = append(leases, op)
		}
	}
	return leases, registers
}

// search lets porcupine search for an order.
func (o options) search(model porcupine.Model, steps []porcupine.Operation) []Violation {
	switch porcupine.CheckOperationsTimeout(model, steps, o.timeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []Violation{{Rule: Undecided, Text: fmt.Sprintf("%d operations in %v", len(steps), o.timeout)}}
	}
	_, info := porcupine.CheckOperationsVerbose(model, steps, o.timeout)
	return []Violation{{Rule: Order, Text: "the first of those that fit in nowhere", Ops: misfits(steps, info)}}
}

// misfits returns the operations that the longest order leaves out and that returned first.
func misfits(steps []porcupine.Operation, info porcupine.LinearizationInfo) History {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := make([]bool, len(steps))
	for _, i := range longest {
		placed[i] = true
	}
	var out History
	for i, s := range steps {
		if op := opOf(s); !placed[i] && op.Return != 0 {
			out = append(out, op)
		}
	}
	slices.SortFunc(out, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	return out[:min(4, len(out))]
}

func opOf(o porcupine.Operation) Op {
	if s, ok := o.Input.(step); ok {
		return s.op
	}
	op, _ := o.Input.(Op)
	return op
}

// pictured is how many terms around a violation a picture shows: a browser can draw a few
// hundred operations, not a storm.
const pictured = 8

// keep writes the operations of a key and their picture.
func keep(t testing.TB, v Violation, ops History) {
	t.Helper()
	dir := os.Getenv("HOLDFAST_TEST_ARTIFACTS")
	if dir == "" {
		dir = os.TempDir()
	}
	name := regexp.MustCompile(`[^\w-]+`).ReplaceAllString(t.Name(), "_")
	if err := os.MkdirAll(dir, 0o750); err != nil { //nolint:gosec // chosen by the user of the tests
		t.Logf("history: %v", err)
	}
	file, err := os.CreateTemp(dir, name+"-*.html")
	if err != nil {
		t.Logf("history: no picture: %v", err)
		return
	}
	defer func() { _ = file.Close() }()
	record := file.Name()[:len(file.Name())-len(filepath.Ext(file.Name()))] + ".jsonl"
	if err := ops.WriteFile(record); err != nil {
		t.Logf("history: no record: %v", err)
	}
	leases, registers := split(ops)
	model, steps := leaseModel(), window(leases, v)
	if len(registers) > 0 && len(leases) == 0 {
		model, steps = registerModel(), registerSteps(registers)
	}
	_, info := porcupine.CheckOperationsVerbose(model, steps, 10*time.Second)
	if err := porcupine.Visualize(model, info, file); err != nil {
		t.Logf("history: no picture: %v", err)
	}
	t.Logf("history: picture %s, operations %s", file.Name(), record)
}

// window returns the steps of the terms around a violation, or all steps if the violation names
// none. It leaves out refusals, except those of the violation: there are many, and they would
// refer to terms that are not shown.
func window(ops History, v Violation) []porcupine.Operation {
	l := leaseOf(ops)
	if v.Rule == Order || v.Rule == Undecided {
		return l.steps()
	}
	l.refused = nil
	first, last := len(l.terms), 0
	for _, op := range v.Ops {
		if op.Outcome == Refused {
			l.refused = append(l.refused, op)
		}
		for i, t := range l.terms {
			if t.grant.Token == op.Token {
				first, last = min(first, i), max(last, i)
			}
		}
	}
	if first < len(l.terms) {
		l.terms = l.terms[max(0, first-pictured):min(len(l.terms), last+pictured+1)]
		l.terms[0].previous = 0
	}
	return l.steps()
}

package history

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A term is a grant with the operations that followed it.
type term struct {
	grant    Op
	previous int64 // the token granted before it, 0 for the first
	trusted  Stamp // the holder trusted it until this moment at least
	ended    bool  // whether its end was seen, before or without a release
	releases History
	uses     History // renewals and commits that succeeded
}

// released returns the successful release, if there was one.
func (t *term) released() *Op {
	if len(t.releases) == 0 {
		return nil
	}
	return &t.releases[0]
}

// lapse returns the end of the holder's trust, as an operation of the holder.
func (t *term) lapse() Op {
	return Op{Process: t.grant.Process, Client: t.grant.Client, Kind: kindLapse, Token: t.grant.Token, Call: t.trusted}
}

// A lease is the history of one key, put in order for the model.
type lease struct {
	terms   []*term // by token, then by return
	refused History
	orphans History // releases, renewals and commits with tokens that were never granted
}

type holder struct {
	token           int64
	process, client int
}

func leaseOf(ops History) lease {
	var l lease
	terms := make(map[holder]*term)
	ghost := Stamp(-1) // the first attempt with an unknown outcome
	for _, op := range ops {
		switch {
		case op.Kind != KindGrant:
		case op.Outcome == OK:
			t := &term{grant: op, trusted: max(op.Return, op.Until)}
			l.terms = append(l.terms, t)
			terms[holder{op.Token, op.Process, op.Client}] = t
		case op.Outcome == Refused:
			l.refused = append(l.refused, op)
		case op.Outcome == "" && (ghost < 0 || op.Call < ghost):
			ghost = op.Call
		}
	}
	if ghost >= 0 {
		// That attempt would explain each of these.
		l.refused = slices.DeleteFunc(l.refused, func(op Op) bool { return op.Return >= ghost })
	}
	slices.SortFunc(l.terms, func(a, b *term) int {
		return cmp.Or(cmp.Compare(a.grant.Token, b.grant.Token), cmp.Compare(a.grant.Return, b.grant.Return))
	})
	for i, t := range l.terms[min(1, len(l.terms)):] {
		t.previous = l.terms[i].grant.Token
	}
	l.follow(ops, terms)
	return l
}

// follow adds to the terms the operations after their grants.
func (l *lease) follow(ops History, terms map[holder]*term) {
	ends := make(map[*term]Stamp)
	for _, op := range ops {
		if op.Kind == KindGrant {
			continue
		}
		t := terms[holder{op.Token, op.Process, op.Client}]
		if t == nil {
			l.orphans = append(l.orphans, op)
			continue
		}
		switch op.Kind {
		case KindRelease, KindEnded:
			if end, ok := ends[t]; !ok || op.Call < end {
				ends[t] = op.Call
			}
			if op.Kind == KindRelease && op.Outcome == OK {
				t.releases = append(t.releases, op)
			} else {
				t.ended = true
			}
		case KindRenew, KindCommit:
			if op.Outcome == OK {
				t.uses = append(t.uses, op)
				t.trusted = max(t.trusted, op.Until)
			}
		}
	}
	for t, end := range ends {
		t.trusted = max(end, t.grant.Return)
		slices.SortFunc(t.releases, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
	}
}

// outside ends the trust in terms where a span begins, if they were granted before or during it.
// A grant in progress when the span began was never trusted.
func (l *lease) outside(spans []Span) {
	for _, t := range l.terms {
		for _, s := range spans {
			switch {
			case s.Process != Everybody && s.Process != t.grant.Process, t.grant.Call > s.To:
			case s.Bounded && t.trusted > s.To:
			case t.grant.Return >= s.From:
				t.trusted, t.ended = t.grant.Call, true
			case t.trusted > s.From:
				t.trusted, t.ended = s.From, true
			}
		}
	}
}

// A step is an operation as the model sees it. It contains the token granted before it: tokens
// must increase, so there is one order in which all grants can have happened, and the checker
// need not search for it.
type step struct {
	op              Op
	token, previous int64
}

// steps returns the operations of the model. Failed releases, and operations of unknown outcome,
// are no steps: they only ended the holder's trust.
func (l *lease) steps() []porcupine.Operation {
	var steps []porcupine.Operation
	clients := make(map[holder]int)
	var last Stamp
	add := func(s step, from, to Stamp) {
		who := holder{0, s.op.Process, s.op.Client}
		if _, ok := clients[who]; !ok {
			clients[who] = len(clients)
		}
		steps = append(steps, porcupine.Operation{ClientId: clients[who], Input: s, Call: int64(from), Return: int64(to)})
		last = max(last, from, to)
	}
	for _, t := range l.terms {
		token := t.grant.Token
		add(step{t.grant, token, t.previous}, t.grant.Call, t.grant.Return)
		for _, op := range slices.Concat(t.uses, t.releases) {
			add(step{op: op, token: token}, op.Call, op.Return)
		}
	}
	for _, op := range l.refused {
		add(step{op: op}, op.Call, op.Return)
	}
	// A successful release alone explains the end of its term: it found that no other call had
	// taken over. Any other end is open towards the future, and has a separate line in the
	// picture.
	for _, t := range l.terms {
		if t.released() == nil {
			last = max(last, t.trusted)
		}
	}
	line := len(clients)
	for _, t := range l.terms {
		if t.released() == nil {
			lapse := step{op: t.lapse(), token: t.grant.Token}
			steps = append(steps, porcupine.Operation{ClientId: line, Input: lapse, Call: int64(t.trusted), Return: int64(last) + 1})
			line++
		}
	}
	return steps
}

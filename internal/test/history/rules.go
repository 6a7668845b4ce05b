package history

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// A Rule is a property that a history can break.
type Rule string

// The rules.
const (
	TokenOrder  Rule = "token does not go up"
	Exclusion   Rule = "two holders at once"
	StaleTerm   Rule = "a term that was over was used"
	Refusal     Rule = "held, said of a free lease"
	StaleCommit Rule = "a stale term committed"
	Order       Rule = "no order of these operations explains their results"
	Incomplete  Rule = "a term without its grant"
	Undecided   Rule = "not judged in time"
)

// A Violation is a rule that the operations of a key break.
type Violation struct {
	Rule Rule
	Key  string
	Text string  // a description of the violation
	Ops  History // the operations that contradict each other
}

// The rules below need no search. Together, all except the rule of refusals are equivalent to
// the model: once tokens fix the order of the grants, intervals fit into it if each two of them
// do. They are checked first because they name the violation.

// violations returns the rules that the lease breaks, at most one of each kind.
func (l *lease) violations() []Violation {
	if len(l.orphans) > 0 {
		return []Violation{{Rule: Incomplete, Text: "the history lacks a grant", Ops: l.orphans[:1]}}
	}
	terms := l.terms
	all := l.tokenOrder()
	if len(all) > 0 {
		// Tokens say nothing then; answers still arrived in an order.
		terms = slices.Clone(terms)
		slices.SortFunc(terms, func(a, b *term) int { return cmp.Compare(a.grant.Return, b.grant.Return) })
	}
	all = append(all, exclusion(terms)...)
	all = append(all, staleUses(terms)...)
	if len(all) == 0 {
		all = l.refusals()
	}
	return all
}

// tokenOrder finds a token that was granted twice, or that is not larger than the token of a
// grant that had returned before.
func (l *lease) tokenOrder() []Violation {
	for i, t := range l.terms[min(1, len(l.terms)):] {
		if former := l.terms[i]; t.grant.Token == former.grant.Token {
			return []Violation{{Rule: TokenOrder, Text: "one token was granted twice", Ops: History{former.grant, t.grant}}}
		}
	}
	byCall, byReturn := slices.Clone(l.terms), slices.Clone(l.terms)
	slices.SortFunc(byCall, func(a, b *term) int { return cmp.Compare(a.grant.Call, b.grant.Call) })
	slices.SortFunc(byReturn, func(a, b *term) int { return cmp.Compare(a.grant.Return, b.grant.Return) })
	var largest *term
	returned := 0
	for _, t := range byCall {
		for ; byReturn[returned].grant.Return < t.grant.Call; returned++ {
			if largest == nil || byReturn[returned].grant.Token > largest.grant.Token {
				largest = byReturn[returned]
			}
		}
		if largest != nil && largest.grant.Token > t.grant.Token {
			return []Violation{{Rule: TokenOrder, Text: "a later grant has a smaller token", Ops: History{largest.grant, t.grant}}}
		}
	}
	return nil
}

// exclusion finds a grant that returned while the holder of an earlier term still trusted that
// term.
func exclusion(terms []*term) []Violation {
	var longest *term
	for _, t := range terms {
		if longest != nil && t.grant.Return < longest.trusted {
			return []Violation{{
				Rule: Exclusion, Text: "a lease was granted while the holder before still trusted it",
				Ops: History{longest.grant, t.grant, longest.lapse()},
			}}
		}
		if longest == nil || t.trusted > longest.trusted {
			longest = t
		}
	}
	return nil
}

// staleUses finds a release, renewal or commit that succeeded although its term was no longer
// the last one: another had been granted, or it was released.
func staleUses(terms []*term) []Violation {
	next := make([]*term, len(terms)) // among the later terms, the one whose grant returned first
	for i := len(terms) - 2; i >= 0; i-- {
		next[i] = terms[i+1]
		if after := next[i+1]; after != nil && after.grant.Return < next[i].grant.Return {
			next[i] = after
		}
	}
	for i, t := range terms {
		if len(t.releases) > 1 {
			return []Violation{{Rule: StaleTerm, Ops: append(History{t.grant}, t.releases...), Text: "it was released twice"}}
		}
		for _, op := range slices.Concat(t.uses, t.releases) {
			rule := StaleTerm
			if op.Kind == KindCommit {
				rule = StaleCommit
			}
			// If the holder still trusts the term, Exclusion reports it.
			if next[i] != nil && op.Call > next[i].grant.Return && next[i].grant.Return >= t.trusted {
				return []Violation{{
					Rule: rule, Ops: History{t.grant, next[i].grant, op},
					Text: "it succeeded although another term had been granted",
				}}
			}
			if r := t.released(); r != nil && op.ID != r.ID && op.Call > r.Return {
				return []Violation{{
					Rule: rule, Ops: History{t.grant, *r, op},
					Text: "it succeeded although the term had been released",
				}}
			}
		}
	}
	return nil
}

// refusals finds a client that got "held" at a time between a release and the next grant, or
// before the first grant.
func (l *lease) refusals() []Violation {
	n := len(l.terms)
	earliest, latest := make([]Stamp, n), make([]Stamp, n) // the bounds of the time in which a term can have been in the database
	var since Stamp
	for i, t := range l.terms {
		since = max(since, t.grant.Call)
		earliest[i] = since
		if r := t.released(); r != nil {
			since = max(since, r.Call)
		} else {
			since = max(since, t.trusted)
		}
	}
	until := Stamp(math.MaxInt64)
	for i := n - 1; i >= 0; i-- {
		if r := l.terms[i].released(); r != nil {
			until = min(until, r.Return)
		}
		latest[i] = until
		until = min(until, l.terms[i].grant.Return)
	}
	for _, op := range l.refused {
		i := sort.Search(n, func(i int) bool { return earliest[i] > op.Return }) - 1
		if i >= 0 && latest[i] >= op.Call {
			continue
		}
		ops := History{op}
		if i >= 0 {
			ops = append(ops, l.terms[i].grant)
			ops = append(ops, l.terms[i].releases...)
		}
		if i+1 < n {
			ops = append(ops, l.terms[i+1].grant)
		}
		return []Violation{{Rule: Refusal, Text: "no term can have been held then", Ops: ops}}
	}
	return nil
}

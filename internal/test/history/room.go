package history

import "fmt"

// room finds a grant that returned while others held the units that it took: holders that
// trusted their terms, or terms that were over but whose releases succeeded.
func (l *lease) room(capacity int) []Violation {
	for _, t := range l.terms {
		at := t.grant.Return
		if at >= t.until() {
			continue
		}
		units, rule, ops := 0, Exclusion, History(nil)
		for _, o := range l.terms {
			if o.grant.Return > at || at >= o.until() {
				continue
			}
			units += o.units(capacity)
			ops = append(ops, o.grant)
			if at >= o.trusted {
				rule, ops = StaleTerm, append(ops, *o.released())
			}
		}
		if units > capacity {
			return []Violation{{Rule: rule, Ops: ops, Text: fmt.Sprintf("%d of %d units were out when token %d was granted", units, capacity, t.grant.Token)}}
		}
	}
	return nil
}

// until returns the earliest time at which a term may have been over.
func (t *term) until() Stamp {
	if r := t.released(); r != nil {
		return max(t.trusted, r.Call)
	}
	return t.trusted
}

func (t *term) units(capacity int) int {
	if t.grant.Units == 0 {
		return capacity
	}
	return t.grant.Units
}

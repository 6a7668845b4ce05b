package history

import (
	"math/rand/v2"
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestRulesAgreeWithModel checks that the rules find the histories that the model refuses, with
// small random histories. Refusals may need the model's search.
func TestRulesAgreeWithModel(t *testing.T) {
	t.Parallel()
	var broken, onlyByModel int
	for seed := range uint64(20_000) {
		ops := randomLease(rand.New(rand.NewPCG(seed, 1)))
		l := leaseOf(ops)
		legal := porcupine.CheckOperations(leaseModel(), l.steps())
		found := l.violations()
		if legal && len(found) > 0 {
			t.Fatalf("seed %d: %s: %s%s\nbut the model accepts%s", seed, found[0].Rule, found[0].Text, found[0].Ops.text(0), ops.text(0))
		}
		if !legal {
			broken++
		}
		if !legal && len(found) == 0 {
			onlyByModel++
			l.refused = nil
			if !porcupine.CheckOperations(leaseModel(), l.steps()) {
				t.Fatalf("seed %d: the model alone refuses%s", seed, ops.text(0))
			}
		}
	}
	t.Logf("of 20,000: %d broken, %d of them by a refusal that only the model sees through", broken, onlyByModel)
	if broken < 2_000 || broken > 18_000 {
		t.Error("the histories are too much of one kind")
	}
}

// randomLease makes a few terms, mostly one after the other, with wide intervals.
func randomLease(r *rand.Rand) History {
	var h History
	stamp := func(at, width int) Stamp { return Stamp(1 + max(0, at+r.IntN(width))) }
	add := func(op Op, at, width int) Op {
		op.ID, op.Call = len(h), max(op.Call, stamp(at, width))
		op.Return = op.Call + stamp(0, width)
		h = append(h, op)
		return op
	}
	width := 2 + r.IntN(14)
	for i := range 1 + r.IntN(4) {
		token := int64(i + 1)
		if r.IntN(20) == 0 {
			token = 1 + r.Int64N(4)
		}
		at := 12 * i
		g := add(Op{Client: i, Kind: KindGrant, Outcome: OK, Token: token, Until: stamp(at, 12)}, at, width)
		mine := Op{Client: i, Token: token, Call: g.Return, Outcome: OK}
		if r.IntN(3) == 0 {
			mine.Kind = KindEnded
			add(mine, at, width)
		}
		for range r.IntN(2) {
			mine.Kind = [...]Kind{KindRenew, KindCommit}[r.IntN(2)]
			add(mine, at, width)
		}
		for range r.IntN(3) {
			mine.Kind, mine.Outcome = KindRelease, [...]Outcome{OK, OK, OK, OK, Lost, ""}[r.IntN(6)]
			add(mine, at+4, width)
		}
	}
	for range r.IntN(4) {
		add(Op{Client: 9, Kind: KindGrant, Outcome: [...]Outcome{Refused, Refused, Refused, ""}[r.IntN(4)]}, r.IntN(50), width)
	}
	return h
}

package history_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
)

// TestStormIsJudged runs 64 clients on four keys, with lost answers, crashes, renewals and late
// releases.
func TestStormIsJudged(t *testing.T) {
	t.Parallel()
	h := simulate(1, correct, 64, 4, 20_000)
	counts := make(map[string]int)
	for _, op := range h {
		counts[string(op.Kind)+" "+string(op.Outcome)]++
	}
	began := time.Now()
	history.Check(t, h)
	t.Logf("%d operations judged in %v: %v", len(h), time.Since(began), counts)
}

func TestManySmallStormsAreJudged(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		if found := history.Judge(simulate(seed, correct, 8, 1, 80)); len(found) > 0 {
			t.Fatalf("seed %d: %v", seed, found)
		}
	}
}

// TestBrokenLocksAreCaught checks that each broken lock breaks its own rule.
func TestBrokenLocksAreCaught(t *testing.T) {
	t.Parallel()
	for b, rules := range map[bug][]history.Rule{
		tokenReset:     {history.TokenOrder},
		releaseByName:  {history.StaleTerm, history.Exclusion},
		renewByName:    {history.StaleTerm},
		earlyExpiry:    {history.Exclusion},
		grantsHeld:     {history.Exclusion},
		refusesFree:    {history.Refusal},
		commitsExpired: {history.StaleCommit},
	} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			seen := make(map[history.Rule]int)
			clients := 16
			if b == refusesFree { // with more clients, one of them may always have held it
				clients = 2
			}
			for seed := range uint64(8) {
				for _, v := range history.Judge(simulate(seed, b, clients, 1, 1500)) {
					seen[v.Rule]++
				}
			}
			t.Log(seen)
			for _, rule := range rules {
				if seen[rule] == 0 {
					t.Errorf("never %q", rule)
				}
			}
		})
	}
}

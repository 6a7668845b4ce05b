package simulation

import (
	"regexp"
	"testing"
)

// planted are bugs in the client of leases.
var planted = map[string]change{
	"a waiter that left keeps the lock it was handed": {"sqllock/release.go", "if gone && lease != nil {", "if gone && lease != nil && l == nil {"},
	"a waiter that leaves wakes nobody":               {"sqllock/queue.go", "return o == w })\n\tm.wake(q.name)", "return o == w })"},
	"a release wakes nobody":                          {"sqllock/release.go", "\t\tm.wake(l.Attempt().Name)\n\t}\n\treturn m.k.Result", "\t}\n\treturn m.k.Result"},
	"a failed hand-over goes on for ever":             {"sqllock/release.go", "\tw.passing = false\n", ""},
	"the last waiter is first":                        {"sqllock/queue.go", "\tw := q.waiters[0]\n", "\tw := q.waiters[len(q.waiters)-1]\n"},
	"a lease that is not handed over is not freed":    {"sqllock/release.go", "\tif !passed {\n\t\thanded", "\tif !passed && l.Attempt().Ambiguous {\n\t\thanded"},
	"a lease is trusted from its answer on":           {"sqllock/acquire.go", "v, err := ask(ctx, a)\n\treturn m.granted(ctx, a, s, sent", "v, err := ask(ctx, a)\n\tsent = time.Now()\n\treturn m.granted(ctx, a, s, sent"},
	"a batch mixes up its answers":                    {"sqllock/internal/batcher/batcher.go", "batch[i].answer, batch[i].answered = a, true", "batch[len(batch)-1-i].answer, batch[len(batch)-1-i].answered = a, true"},
	"a release without an answer says ok":             {"sqllock/internal/keeper/release.go", "case err == nil && f.Was:", "case err == nil && (f.Was || f.Ambiguous):"},
	"a grant whose answer was lost is handed over":    {"sqllock/release.go", "m.k.Closed || l.Attempt().Ambiguous {", "m.k.Closed {"},
}

var foundAt = regexp.MustCompile(`seed (\d+), schedule (\d+): (.*)`)

// TestPlanted runs schedules with each planted bug, from seed 1, until a promise is broken.
func TestPlanted(t *testing.T) {
	onlyLong(t)
	for name, bug := range planted {
		t.Run(name, func(t *testing.T) {
			out, _ := child(t, build(t, bug), "-test.run", "^TestSchedules$", "-seed", "1", "-schedules", "40000")
			found := foundAt.FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("nothing in 40000 schedules:\n%s", out[max(0, len(out)-2000):])
			}
			t.Logf("seed=%s schedule=%s: %s", found[1], found[2], found[3])
		})
	}
}

package simulation

import (
	"regexp"
	"testing"
)

// plant is a bug, and the scene that must find it.
type plant struct {
	scene   string
	changes []change
}

// planted are bugs in the client of leases, and in that of idempotent operations.
var planted = map[string]plant{
	"a waiter that left keeps the lock it was handed": {"leases", []change{{"sqllock/release.go", "if gone && lease != nil {", "if gone && lease != nil && l == nil {"}}},
	"a waiter that leaves wakes nobody":               {"leases", []change{{"sqllock/queue.go", "return o == w })\n\tm.wake(q.name)", "return o == w })"}}},
	"a release wakes nobody":                          {"leases", []change{{"sqllock/release.go", "\t\tm.wake(l.Attempt().Name)\n\t}\n\treturn m.k.Result", "\t}\n\treturn m.k.Result"}}},
	"a failed hand-over goes on for ever":             {"leases", []change{{"sqllock/release.go", "\tw.passing = false\n", ""}}},
	"the last waiter is first":                        {"leases", []change{{"sqllock/queue.go", "\tw := q.waiters[0]\n", "\tw := q.waiters[len(q.waiters)-1]\n"}}},
	"a lease that is not handed over is not freed":    {"leases", []change{{"sqllock/release.go", "\tif !passed {\n\t\thanded", "\tif !passed && l.Attempt().Ambiguous {\n\t\thanded"}}},
	"a lease is trusted from its answer on":           {"leases", []change{{"sqllock/acquire.go", "v, err := ask(ctx, a)\n\treturn m.granted(ctx, a, s, sent", "v, err := ask(ctx, a)\n\tsent = time.Now()\n\treturn m.granted(ctx, a, s, sent"}}},
	"a batch mixes up its answers":                    {"leases", []change{{"sqllock/internal/batcher/batcher.go", "batch[i].answer, batch[i].answered = a, true", "batch[len(batch)-1-i].answer, batch[len(batch)-1-i].answered = a, true"}}},
	"a release without an answer says ok":             {"leases", []change{{"sqllock/internal/keeper/release.go", "case err == nil && f.Was:", "case err == nil && (f.Was || f.Ambiguous):"}}},
	"a grant whose answer was lost is handed over":    {"leases", []change{{"sqllock/release.go", "m.k.Closed || l.Attempt().Ambiguous {", "m.k.Closed {"}}},

	"a leader that fails ends no flight":  {"flights", []change{{"idempotency/do.go", "s.flights.Finish(p.hash, f, r) }()", "if err == nil {\n\t\t\ts.flights.Finish(p.hash, f, r)\n\t\t}\n\t}()"}}},
	"a leader that panics ends no flight": {"flights", []change{{"idempotency/do.go", "s.flights.Finish(p.hash, f, r) }()", "if r != nil || err != nil {\n\t\t\ts.flights.Finish(p.hash, f, r)\n\t\t}\n\t}()"}}},
	"a follower does not take over":       {"flights", []change{{"idempotency/do.go", "err = inProgress(err)\n\t\tif c.noWait", "err = inProgress(err)\n\t\tif err == nil && r == nil {\n\t\t\terr = &InProgressError{}\n\t\t}\n\t\tif c.noWait"}}},
	"a follower gets what was not committed": {"flights", []change{
		{"idempotency/do.go", "defer func() { s.flights.Finish(p.hash, f, r) }()", "var early *record\n\tdefer func() { s.flights.Finish(p.hash, f, early) }()"},
		{"idempotency/do.go", "return s.try(ctx, p, in, w) },", "return s.try(ctx, p, in, func(ctx context.Context, tx access.OwnTx[Tx]) (storedResult, error) {\n\t\tv, err := w(ctx, tx)\n\t\tif err == nil {\n\t\t\tearly = p.executing()\n\t\t\tearly.storedResult = v\n\t\t}\n\t\treturn v, err\n\t}) },"},
	}},
	"an answer is not compared with the request":   {"flights", []change{{"idempotency/do.go", "if err := c.judge(r); err != nil {", "if err := c.judge(r); err != nil && o != Replayed {"}}},
	"an unknown commit is forgotten":               {"flights", []change{{"idempotency/internal/once/retry.go", "c.unknown = err\n\t\treturn", "return"}}},
	"a lost COMMIT counts as rolled back":          {"flights", []change{{"engine_owntx_end.go", "nothing happened: %w\", err)\n\t}\n\treturn &UnknownError{Err: err}", "nothing happened: %w\", err)\n\t}\n\treturn err"}}},
	"a lost COMMIT counts as done":                 {"flights", []change{{"engine_owntx_end.go", "nothing happened: %w\", err)\n\t}\n\treturn &UnknownError{Err: err}", "nothing happened: %w\", err)\n\t}\n\treturn nil"}}},
	"a claim does not look":                        {"flights", []change{{"idempotency/lockfirst.go", "if !s.sql.claim.Reserved(a.Result) {", "if false {"}}},
	"a function that panics keeps its transaction": {"flights", []change{{"idempotency/protocol.go", "defer t.Rollback() // unless finish has ended it", ""}}},
	"a rejection of DoTx keeps the effect":         {"flights", []change{{"idempotency/joined.go", "{Name: \"rollback to\", Text: `ROLLBACK TO SAVEPOINT ` + name}", "{Name: \"savepoint\", Text: `SAVEPOINT ` + name}"}}},
	"a void of what is done says voided":           {"flights", []change{{"idempotency/void.go", "case r != nil && o == Replayed:", "case r != nil && o == Replayed && !leads:"}}},
	"a void of what was refused says voided":       {"flights", []change{{"idempotency/void.go", "if late.Rejection.Code == CodeVoided {", "if late.Rejection != nil {"}}},
	"a void is not written":                        {"flights", []change{{"idempotency/void.go", "\tp := &pending{call: c, deadline: time.Now().Add(c.wait)}\n", "\tp := &pending{call: c, deadline: time.Now().Add(c.wait)}\n\tif found, err := s.read(ctx, p); found == nil && err == nil {\n\t\treturn Executed, nil\n\t}\n"}}},
	"what follows a lost transaction is committed": {"flights", []change{{"internal/dialect/sqlite/veto.go", "if forbidden() {", "if false {"}}},
}

var foundAt = regexp.MustCompile(`seed (\d+), schedule (\d+): (.*)`)

// TestPlanted runs schedules with each planted bug, from seed 1, until a promise is broken.
func TestPlanted(t *testing.T) {
	onlyLong(t)
	for name, bug := range planted {
		t.Run(name, func(t *testing.T) {
			out, _ := child(t, build(t, bug.changes...), "-test.run", "^TestSchedules$/^"+bug.scene+"$", "-seed", "1", "-schedules", "40000")
			found := foundAt.FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("nothing in 40000 schedules:\n%s", out[max(0, len(out)-2000):])
			}
			t.Logf("seed=%s schedule=%s: %s", found[1], found[2], found[3])
		})
	}
}

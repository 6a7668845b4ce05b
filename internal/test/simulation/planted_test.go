package simulation

import (
	"regexp"
	"strings"
	"testing"
)

// plant is a bug, and the scene that must find it.
type plant struct {
	scene   string
	changes []change
}

// planted are bugs in the client of leases, in those of idempotent and of staged operations, and in that of tickets.
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
	"a function that panics keeps its transaction": {"flights", []change{{"idempotency/protocol.go", "\terr = &once.FuncError{Err: trace.ErrAborted} // if the function panics or ends its goroutine\n", "\t_ = trace.ErrAborted\n"}}},
	"a rejection of DoTx keeps the effect":         {"flights", []change{{"idempotency/joined.go", "stmt(\"rollback to\", `ROLLBACK TO `+name)", "stmt(\"savepoint\", name)"}}},
	"a void of what is done says voided":           {"flights", []change{{"idempotency/void.go", "case r != nil && o == Replayed:", "case r != nil && o == Replayed && !leads:"}}},
	"a void of what was refused says voided":       {"flights", []change{{"idempotency/void.go", "if late.Rejection.Code == CodeVoided {", "if late.Rejection != nil {"}}},
	"a void is not written":                        {"flights", []change{{"idempotency/void.go", "\tp := &pending{call: c, deadline: time.Now().Add(c.wait)}\n", "\tp := &pending{call: c, deadline: time.Now().Add(c.wait)}\n\tif found, err := s.read(ctx, p); found == nil && err == nil {\n\t\treturn Executed, nil\n\t}\n"}}},
	"what follows a lost transaction is committed": {"flights", []change{{"internal/dialect/sqlite/veto.go", "if forbidden() {", "if false {"}}},

	"the result of a step is not stored":             {"staged", []change{{"idempotency/staged/run.go", "\t\treturn r.transitions.SQL.StepEnd.With(r.id.Args(step, ledger.StepDone, b, nil, nil)...), err\n", "\t\t_ = b\n\t\treturn owning, err\n"}}},
	"a call in doubt is made again":                  {"staged", []change{{"idempotency/staged/run.go", "ambiguous = open && (row.Token != r.token || ambiguous) || ", "ambiguous = open && row.Token == r.token && ambiguous || "}}},
	"the unknown outcome of a commit is forgotten":   {"staged", []change{{"idempotency/staged/run.go", "\t\tambiguous = open && (row.Token != r.token || ambiguous) || ", "\t\tambiguous = open && row.Token != r.token || "}}},
	"a worker that lost its operation goes on":       {"staged", []change{{"idempotency/staged/transitions.go", "\tif a.Err != nil || a.Affected == 1 {\n\t\treturn a.Err\n\t}\n\tnow, err := s.Find(ctx, q, r.id)\n\tif err != nil {", "\tif a.Err != nil || a.Affected <= 1 {\n\t\treturn a.Err\n\t}\n\tnow, err := s.Find(ctx, q, r.id)\n\tif err != nil {"}}},
	"a claim does not compare the token":             {"staged", []change{{storeFile, "(attempt(args[0]) || row[opToken] == rest[1] && due)", "(attempt(args[0]) || due)"}}},
	"a claim does not look at the lease":             {"staged", []change{{"idempotency/staged/runner.go", "case row.Left <= 0:\n", "case row.Left <= 1<<60:\n"}, {storeFile, "(attempt(args[0]) || row[opToken] == rest[1] && due)", "(attempt(args[0]) || row[opToken] == rest[1])"}}},
	"a worker's statements do not compare its term":  {"staged", []change{{storeFile, "return pending && attempt(rest[0]) && row[opToken] == rest[1]", "return pending"}}},
	"an operation begins once more than it may":      {"staged", []change{{"idempotency/staged/claim.go", "case seen.Started >= s.workflow.MaxAttempts:", "case seen.Started > s.workflow.MaxAttempts:"}}},
	"a cancel does not look for a call":              {"staged", []change{{"idempotency/staged/cancel.go", "case st.ProviderKey != \"\":", "case st.ProviderKey == \"none\":"}}},
	"a cancel without an undo leaves steps":          {"staged", []change{{"idempotency/staged/cancel.go", "case !undone:", "case !undone && row.Restored == 1:"}}},
	"a cancel does not undo":                         {"staged", []change{{"idempotency/staged/cancel.go", "\tif c.undo != nil {\n\t\tif undo, err", "\tif c.undo != nil && row.Restored == 1 {\n\t\tif undo, err"}}},
	"a cancel of what was refused says cancelled":    {"staged", []change{{"idempotency/staged/cancel.go", "if late.Rejection.Code == idempotency.CodeVoided {", "if late.Rejection.Code != \"\" {"}}},
	"a request is not compared":                      {"staged", []change{{"idempotency/staged/runner.go", "if err := c.Compare(row.FingerprintVersion, row.Fingerprint); err != nil {", "if err := c.Compare(row.FingerprintVersion, row.Fingerprint); err != nil && row.State == ledger.Pending {"}}},
	"a lost COMMIT of a start counts as rolled back": {"staged", []change{{"engine_owntx_end.go", "nothing happened: %w\", err)\n\t}\n\treturn &UnknownError{Err: err}", "nothing happened: %w\", err)\n\t}\n\treturn err"}}},
	"a lost COMMIT of a start counts as done":        {"staged", []change{{"engine_owntx_end.go", "nothing happened: %w\", err)\n\t}\n\treturn &UnknownError{Err: err}", "nothing happened: %w\", err)\n\t}\n\treturn nil"}}},
	"a pass keeps an operation that has ended":       {"staged", []change{{"idempotency/staged/complete.go", "\t\t\tdefer s.local.over(id)\n\t\t\ts.complete(ctx, id, p)", "\t\t\ts.complete(ctx, id, p)"}}},
	"a call that has waited stays in the list":       {"staged", []change{{"idempotency/staged/wait.go", "\tdefer leave()\n", "\t_ = leave\n"}}},
	"an answer of the provider is not stored":        {"staged", []change{{"idempotency/staged/run.go", "\t\treturn ends, r.transitions.owned(ctx, q, r, step, a)", "\t\treturn owning, r.transitions.owned(ctx, q, r, step, a)"}}},

	"a grant is of the call, not of its ticket":         {"tickets", []change{{"sqllock/fairlock/queue.go", "ready, expired := judged(q.ready), q.expired", "ready, expired := q.ready, q.expired"}, {"sqllock/fairlock/queue.go", "q *queue, ready []*keeper.Lease) {\n\tfor _, l := range ready {", "q *queue, ready []*ticket) {\n\tfor _, c := range ready {"}, {"sqllock/fairlock/queue.go", "\t\tc := s.byLease[l]\n\t\twaits := c != nil &&", "\t\tl := c.lease\n\t\twaits := l != nil &&"}}},
	"a call that gives up leaves its ticket":            {"tickets", []change{{"sqllock/fairlock/ticket.go", "\tif !leaves || c.lease == nil && !entering {\n", "\tif c.gone {\n"}}},
	"a call that gives up does not wait for its ticket": {"tickets", []change{{"sqllock/fairlock/ticket.go", "\tif !leaves || c.lease == nil && !entering {\n", "\tif !leaves || c.lease == nil {\n"}}},
	"a ticket that comes after its call has left stays": {"tickets", []change{{"sqllock/fairlock/queue.go", "\t\t\tunwanted = append(unwanted, e.Attempt)\n", "\t\t\tunwanted = unwanted[:0]\n"}}},
	"a ticket whose COMMIT was not answered stays":      {"tickets", []change{{"sqllock/fairlock/queue.go", "\t\t\tc.err = err\n\t\t\ts.k.Abandon(s, e.Attempt)\n", "\t\t\tc.err = err\n"}}},
	"a release that fails is not repeated":              {"tickets", []change{{"sqllock/fairlock/ticket.go", "\tif err != nil || l.Attempt().Ambiguous {\n\t\ts.k.Abandon", "\tif l.Attempt().Ambiguous {\n\t\ts.k.Abandon"}}},
	"a turn is judged without expired tickets":          {"tickets", []change{{"sqllock/fairlock/poll.go", "\tcase p.units+units <= capacity:\n", "\tcase p.living+units <= capacity:\n"}}},
	"a turn is judged by the number of tickets ahead":   {"tickets", []change{{"sqllock/fairlock/poll.go", "\tcase p.units+units <= capacity:\n", "\tcase p.ahead <= 1:\n"}}},
	"expired tickets are not cleared":                   {"tickets", []change{{"sqllock/fairlock/poll.go", "\t\tq.expired = true\n", "\t\tq.expired = false\n"}}},
	"a ticket is trusted from its answer on":            {"tickets", []change{{"sqllock/fairlock/queue.go", "\tclass := s.statements.Dialect.Classify(err)\n\t// Nothing", "\tsent = time.Now()\n\tclass := s.statements.Dialect.Classify(err)\n\t// Nothing"}}},
	"a grant is trusted from its answer on":             {"tickets", []change{{"sqllock/fairlock/queue.go", "\t\tok, err := s.statements.confirm(ctx, *l.Attempt())\n", "\t\tok, err := s.statements.confirm(ctx, *l.Attempt())\n\t\tsent = time.Now()\n"}}},
	"a ticket is released before its context ends":      {"tickets", []change{{"sqllock/fairlock/ticket.go", "\ts.k.Mu.Lock()\n\ts.k.Finish(l)\n\ts.k.Mu.Unlock()\n\tf, err := s.releaseTicket(ctx, *l.Attempt())\n", "\tf, err := s.releaseTicket(ctx, *l.Attempt())\n\ts.k.Mu.Lock()\n\ts.k.Finish(l)\n\ts.k.Mu.Unlock()\n"}}},
	"a release in doubt does not compare the token":     {"tickets", []change{{"sqllock/internal/keeper/release.go", "a.Attempt == nil && a.Token == l.term.token &&", "a.Attempt == nil &&"}}},
	"a try that is refused waits":                       {"tickets", []change{{"sqllock/fairlock/queue.go", "now: c.now}", "now: false}"}}},
	"an entry counts only who has the lock":             {"tickets", []change{{ticketFile, "\tbefore, _ := units(line, now)\n\troom", "\tbefore, _ := units(slices.DeleteFunc(slices.Clone(line), func(t record) bool { return t[ticketGranted] == nil }), now)\n\troom"}}},
	"an entry counts only tickets that last":            {"tickets", []change{{ticketFile, "\tbefore, _ := units(line, now)\n\troom", "\t_, before := units(line, now)\n\troom"}}},
	"a grant does not look at the expiry":               {"tickets", []change{{ticketFile, "!same(t[ticketAttempt], args[4]) || expired(t, now) {", "!same(t[ticketAttempt], args[4]) {"}}},
	"a renewal revives a ticket":                        {"tickets", []change{{ticketFile, "!has(attempts, blob(t[ticketAttempt])) || expired(t, now) {", "!has(attempts, blob(t[ticketAttempt])) {"}}},
}

// storeFile and ticketFile are what the statements do: a weaker condition of a statement is planted there.
const (
	storeFile  = "internal/test/simulation/stagedstore_test.go"
	ticketFile = "internal/test/simulation/ticketstore_test.go"
)

var foundAt = regexp.MustCompile(`seed (\d+), schedule (\d+): (.*)`)

// TestPlanted runs schedules with each planted bug, from seed 1, until a promise is broken: the seed goes the same way
// again.
func TestPlanted(t *testing.T) {
	onlyLong(t)
	for name, bug := range planted {
		t.Run(name, func(t *testing.T) {
			out, _ := child(t, build(t, bug.changes...), "-test.run", "^TestSchedules$/^"+bug.scene+"$", "-seed", "1", "-schedules", "40000")
			found := foundAt.FindStringSubmatch(out)
			if found == nil {
				t.Fatalf("nothing in 40000 schedules:\n%s", out[max(0, len(out)-2000):])
			}
			if !strings.HasSuffix(found[3], "; and again") {
				t.Errorf("seed %s went another way when it ran again: %s", found[1], found[3])
			}
			t.Logf("seed=%s schedule=%s: %s", found[1], found[2], found[3])
		})
	}
}

package staged_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/rowdiff"
)

// TestTransitions tries each statement of the ledger on an operation in each state that it may be in: of a
// caller that has it, of one that had it, and before and after each of its deadlines. A statement that is
// refused changes nothing. One that is not changes what is listed here, and no row of another step,
// operation, owner or namespace: these are in the same state, and of the same worker.
func TestTransitions(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		w := &world{Env: e, sql: ledger.New(e.DB, ledger.Bounds{}).SQL, began: time.Now().UnixMicro(), before: map[string]rowdiff.Rows{}}
		w.fill()
		for _, tr := range allTransitions(&w.sql) {
			for _, o := range tr.from {
				w.try(&tr, &o)
			}
		}
		for _, o := range states() {
			w.reads(&o)
		}
		w.inserts()
	})
}

// The subject of the statements, and what a worker has that has it.
const (
	hour     = int64(time.Hour / time.Microsecond)
	token    = int64(1000)
	future   = int64(1) << 60 // a token that the clock has not reached
	moved    = "moved_at"
	subject  = "staged shop A"
	step     = "steps shop A pay"
	theStep  = "pay"
	another  = "book"
	reason   = "why"
	original = int64(5000) // a time long ago
)

var mine, theirs = []byte("the worker's own"), []byte("another worker's")

func hash(letter string) (h once.Hash) {
	copy(h[:], strings.Repeat(letter, len(h)))
	return h
}

func at(owner, letter string) once.ID { return once.ID{Owner: owner, Hash: hash(letter)} }

var the = at("shop", "A")

// operation is a row of staged, and its steps.
type operation struct {
	name                             string
	state                            int
	attempt                          []byte
	token, due                       int64 // due: µs from now
	step                             string
	accepted                         int
	resultExpires, keyExpires        int64 // µs from now; 0 is never
	key                              string
	fingerprint                      []byte
	stepState                        int
	reference, provider, stepReverse any
	reversed                         any
}

// states are what an operation is tried in. The first one is that of a worker in its call.
func states() []operation {
	fingerprint := []byte(strings.Repeat("f", 32))
	base := operation{
		state: ledger.Pending, attempt: mine, token: token, due: hour, step: theStep, key: "key", fingerprint: fingerprint,
		stepState: ledger.StepBegun, provider: "bank", reference: "re_old",
	}
	all := []operation{base}
	add := func(name string, change func(o *operation)) {
		o := base
		o.name = name
		change(&o)
		all = append(all, o)
	}
	add("another worker's", func(o *operation) { o.attempt = theirs })
	add("nobody's", func(o *operation) { o.attempt = nil })
	add("of a later term", func(o *operation) { o.token++ })
	add("of a term of the future", func(o *operation) { o.token = future })
	add("of a term of the future, due", func(o *operation) { o.token, o.due, o.attempt = future, -hour, nil })
	add("settling, past its deadline", func(o *operation) {
		o.attempt, o.accepted, o.stepState, o.due = nil, 1, ledger.StepAccepted, -hour
	})
	add("due", func(o *operation) { o.due = -hour })
	add("due and nobody's", func(o *operation) { o.due, o.attempt = -hour, nil })
	add("due and another worker's", func(o *operation) { o.due, o.attempt = -hour, theirs })
	add("due and of a later term", func(o *operation) { o.due, o.attempt = -hour, theirs; o.token++ })
	add("settling", func(o *operation) { o.attempt, o.accepted, o.stepState = nil, 1, ledger.StepAccepted })
	add("at another step", func(o *operation) { o.step = another })
	add("at no step", func(o *operation) { o.step = "" })
	for _, state := range []int{ledger.Succeeded, ledger.Rejected, ledger.Tombstone, ledger.RejectedTombstone, ledger.Parked} {
		add(fmt.Sprint("in state ", state, ", its key expires later"), func(o *operation) { o.state, o.keyExpires = state, hour })
		add(fmt.Sprint("in state ", state, ", nobody's, its key has expired"), func(o *operation) {
			o.state, o.attempt, o.due, o.keyExpires, o.resultExpires = state, nil, -hour, -hour, -hour
		})
	}
	add("unknown and settling, of a term of the future", func(o *operation) { o.state, o.token, o.accepted = ledger.Parked, future, 1 })
	add("its key has expired, though it has not ended", func(o *operation) { o.keyExpires = -hour })
	return all
}

// erased are states of an operation's key.
func erased() []operation {
	all := states()
	for _, o := range all {
		if !o.in(ledger.Tombstone) {
			continue
		}
		for name, change := range map[string]func(o *operation){
			"without its fingerprint": func(o *operation) { o.fingerprint = nil },
			"without both":            func(o *operation) { o.key, o.fingerprint = "", nil },
		} {
			e := o
			e.name += ", " + name
			change(&e)
			all = append(all, e)
		}
	}
	return all
}

// ofSteps are states of the step of a worker's call.
func ofSteps() (all []operation) {
	base := states()[0]
	for state := ledger.StepNotDone; state <= ledger.StepAccepted; state++ {
		o := base
		o.name, o.stepState = fmt.Sprint("its step in state ", state), state
		all = append(all, o)
	}
	o := base
	o.name, o.reference, o.provider = "without a reference", nil, nil
	back := base
	back.name, back.reversed, back.stepReverse, back.stepState = "taken back before", original, original, ledger.StepDone
	return append(all, o, back)
}

func (o *operation) has() bool { return o.owns() && o.state == ledger.Pending }

func (o *operation) owns() bool { return bytes.Equal(o.attempt, mine) && o.token == token }

func (o *operation) in(states ...int) bool { return slices.Contains(states, o.state) }

func (o *operation) open() bool {
	return slices.Contains([]int{ledger.StepNotDone, ledger.StepBegun, ledger.StepAccepted}, o.stepState)
}

// transition is a statement with what it needs and what it does.
type transition struct {
	name    string
	from    []operation // the states in which it is tried
	stmt    core.Stmt
	args    []any
	allowed func(o *operation) bool
	changes func(o *operation) rowdiff.Changes
}

var always = func(*operation) bool { return true }

// of returns the changes of the subject's row: those of every statement, and more.
func of(more rowdiff.Change) rowdiff.Changes {
	c := rowdiff.Change{"version": rowdiff.Plus(1), moved: rowdiff.Now(0)}
	maps.Copy(c, more)
	return rowdiff.Changes{subject: c}
}

func only(c rowdiff.Changes) func(*operation) rowdiff.Changes {
	return func(*operation) rowdiff.Changes { return c }
}

func ofStep(c rowdiff.Change) rowdiff.Changes { return rowdiff.Changes{step: c} }

// bothSteps returns the same change of the subject's steps.
func bothSteps(c rowdiff.Change) rowdiff.Changes {
	return rowdiff.Changes{step: c, "steps shop A " + another: c}
}

func allTransitions(s *ledger.SQL) []transition {
	is, null, now := rowdiff.Is, rowdiff.Is(rowdiff.Null), rowdiff.Now(0)
	has := (*operation).has
	all, steps := states(), ofSteps()
	one := all[:1]
	open := (*operation).open
	claimed := func(o *operation) rowdiff.Changes {
		c := rowdiff.Change{
			"holder": is("me"), "due_at": rowdiff.Now(hour), "result_type": is("type"), "program": is("program"), "accepted": is(0), "attempt": is(string(mine)),
		}
		if !bytes.Equal(o.attempt, mine) { // else it was sent twice
			c["token"], c["started"] = rowdiff.Raised, rowdiff.Plus(1)
		}
		return of(c)
	}
	return []transition{
		{"own", all, s.Own.Stmt, []any{mine, token, another, ledger.ModePark, hour}, has, only(of(rowdiff.Change{"step": is(another), "mode": is(2), "due_at": rowdiff.Now(hour)}))},
		{"renew", all, s.Renew, []any{mine, token, 2 * hour}, has, only(of(rowdiff.Change{"due_at": rowdiff.Now(2 * hour)}))},
		{
			"accept", all, s.Accept,
			[]any{mine, token, 2 * hour},
			has,
			only(of(rowdiff.Change{"attempt": null, "holder": null, "accepted": is(1), "due_at": rowdiff.Now(2 * hour), "reason": null, "started": is(0), "finished": is(0)})),
		},
		{"finish", all, s.Finish.Stmt, []any{mine, token, ledger.Succeeded, []byte("new"), hour, 2 * hour}, has, only(of(rowdiff.Change{
			"state": is(2), "result": is("new"), "step": is(""), "mode": is(1), "reason": null, "due_at": now, "finished": rowdiff.Plus(1), "finished_at": now,
			"result_expires_at": rowdiff.Now(hour), "key_expires_at": rowdiff.Now(2 * hour),
		}))},
		{"release", all, s.Release, []any{mine, token, hour, "boom", 0}, has, only(of(rowdiff.Change{
			"attempt": null, "holder": null, "due_at": rowdiff.Now(hour), "reason": is("boom"), "finished": rowdiff.Plus(1),
		}))},
		{"release, uncounted", all, s.Release, []any{mine, token, hour, "boom", 1}, has, only(of(rowdiff.Change{
			"attempt": null, "holder": null, "due_at": rowdiff.Now(hour), "reason": is("boom"), "started": rowdiff.Plus(-1),
		}))},
		{"park", all, s.Park, []any{mine, token, "boom"}, has, only(of(rowdiff.Change{
			"state": is(6), "attempt": null, "token": rowdiff.Raised, "due_at": now, "reason": is("boom"), "finished": rowdiff.Plus(1),
		}))},
		{"park in a term of the future", all, s.Park, []any{mine, future, "boom"}, func(o *operation) bool {
			return o.in(ledger.Pending) && bytes.Equal(o.attempt, mine) && o.token == future
		}, only(of(rowdiff.Change{
			"state": is(6), "attempt": null, "token": rowdiff.Raised, "due_at": now, "reason": is("boom"), "finished": rowdiff.Plus(1),
		}))},
		{
			"park what is due, of a term of the future", all, s.ParkDue,
			[]any{future, "boom", theStep},
			func(o *operation) bool {
				return o.in(ledger.Pending) && o.token == future && o.due < 0 && o.step == theStep
			},
			only(of(rowdiff.Change{"state": is(6), "attempt": null, "token": rowdiff.Raised, "reason": is("boom"), "accepted": is(0)})),
		},
		{
			"park what is due", all, s.ParkDue,
			[]any{token, "boom", theStep},
			func(o *operation) bool {
				return o.in(ledger.Pending) && o.token == token && o.due < 0 && o.step == theStep
			},
			only(of(rowdiff.Change{"state": is(6), "attempt": null, "token": rowdiff.Raised, "reason": is("boom"), "accepted": is(0)})),
		},
		{
			"claim", all, s.Claim,
			[]any{mine, "me", hour, token, "type", "program", nil},
			func(o *operation) bool {
				return o.in(ledger.Pending) && (bytes.Equal(o.attempt, mine) || o.token == token && o.due < 0)
			},
			claimed,
		},
		{
			"claim in a term of the future", all, s.Claim,
			[]any{mine, "me", hour, future, "type", "program", nil},
			func(o *operation) bool {
				return o.in(ledger.Pending) && (bytes.Equal(o.attempt, mine) || o.token == future && o.due < 0)
			},
			claimed,
		},
		{
			"claim for another request", all, s.Claim,
			[]any{theirs, "me", hour, 7, "type", "program", "request 2"},
			func(o *operation) bool { return o.in(ledger.Pending) && bytes.Equal(o.attempt, theirs) },
			only(of(rowdiff.Change{
				"holder": is("me"), "due_at": rowdiff.Now(hour), "result_type": is("type"), "program": is("program"), "accepted": is(0), "request_id": is("request 2"),
			})),
		},

		{"touch", one, s.Touch, nil, always, only(of(nil))},
		{"continue what is unknown", all, s.Unpark, nil, func(o *operation) bool { return o.in(ledger.Parked) }, only(of(rowdiff.Change{
			"state": is(1), "attempt": null, "token": rowdiff.Raised, "due_at": now, "mode": is(1), "step": is(""), "accepted": is(0), "reason": null, "started": is(0), "finished": is(0),
		}))},
		{
			"its answer is known", all, s.Known,
			[]any{theStep},
			func(o *operation) bool { return o.in(ledger.Pending) && o.step == theStep },
			func(o *operation) rowdiff.Changes {
				c := rowdiff.Change{"step": is(""), "mode": is(1), "accepted": is(0)}
				if o.accepted == 1 || o.attempt == nil {
					c["due_at"] = now
				}
				return of(c)
			},
		},
		{
			"contradict", all, s.Contradict,
			[]any{another, ledger.ModeContradicted, "boom"},
			func(o *operation) bool { return o.in(ledger.Pending, ledger.Parked) },
			func(o *operation) rowdiff.Changes {
				c := rowdiff.Change{
					"state": is(6), "attempt": null, "token": rowdiff.Raised, "due_at": now, "step": is(another), "mode": is(5), "reason": is("boom"), "accepted": is(0),
				}
				if o.attempt != nil {
					c["finished"] = rowdiff.Plus(1)
				}
				return of(c)
			},
		},
		{
			"contradict what has ended", all, s.Contradicted,
			[]any{"boom"},
			func(o *operation) bool { return !o.in(ledger.Pending, ledger.Parked) },
			only(of(rowdiff.Change{"mode": is(5), "reason": is("boom")})),
		},
		{
			"close", all, s.Closing,
			[]any{ledger.Rejected, []byte("new"), hour, 2 * hour},
			func(o *operation) bool { return o.in(ledger.Parked) },
			only(of(rowdiff.Change{
				"state": is(3), "result": is("new"), "token": rowdiff.Raised, "step": is(""), "mode": is(1), "reason": null, "finished_at": now,
				"result_expires_at": rowdiff.Now(hour), "key_expires_at": rowdiff.Now(2 * hour),
			})),
		},
		{"take back", steps, s.Reverse, nil, always, func(o *operation) rowdiff.Changes {
			c := rowdiff.Change{"reversed_at": now}
			if o.reversed != nil {
				c = nil
			}
			return of(c)
		}},

		{"erase", all, s.Erase, nil, func(o *operation) bool { return o.in(ledger.Succeeded, ledger.Rejected) }, only(of(rowdiff.Change{
			"state": rowdiff.Plus(2), "request": null, "result": null, "reason": null, "request_id": null, "result_expires_at": null,
		}))},
		{
			"erase its key", erased(), s.EraseKey, nil,
			func(o *operation) bool {
				return o.in(ledger.Tombstone, ledger.RejectedTombstone) && (o.key != "" || o.fingerprint != nil)
			},
			only(of(rowdiff.Change{"op_key": is(""), "fingerprint": null})),
		},
		{"erase its steps", one, s.EraseSteps, nil, always, only(bothSteps(rowdiff.Change{"result": null}))},
		{"erase its references", one, s.EraseReferences, nil, always, only(bothSteps(rowdiff.Change{"reference": null}))},
		{"erase its events", one, s.EraseEvents, nil, always, only(rowdiff.Changes{"events shop A 1": {"body": null, "kind": is("")}, "events shop A 2": {"body": null, "kind": is("")}})},
		{
			"forget", all, s.Forget, nil, func(o *operation) bool { return !o.in(ledger.Pending, ledger.Parked) && o.keyExpires < 0 },
			only(rowdiff.Changes{subject: nil}),
		},
		{"forget its steps", one, s.ForgetSteps, nil, always, only(bothSteps(nil))},
		{"forget its events", one, s.ForgetEvents, nil, always, only(rowdiff.Changes{"events shop A 1": nil, "events shop A 2": nil})},

		{
			"begin a step again", steps, s.StepBegin.Stmt,
			[]any{theStep, token + 7, "type", 0},
			open,
			func(o *operation) rowdiff.Changes {
				c := rowdiff.Change{"state": is(1), "starts": rowdiff.Plus(1), "token": is(token + 7), "result_type": is("type"), "deadline_at": null, moved: now}
				if o.stepState == ledger.StepNotDone {
					c["begun_at"] = now
				}
				return ofStep(c)
			},
		},
		{"begin a step anew", steps, s.StepBegin.Stmt, []any{theStep, token + 7, "type", 1}, open, only(ofStep(rowdiff.Change{
			"state": is(1), "starts": rowdiff.Plus(1), "token": is(token + 7), "result_type": is("type"), "deadline_at": null, moved: now, "begun_at": now,
		}))},
		{"end a step", steps, s.StepEnd.Stmt, []any{theStep, ledger.StepDone, []byte("new"), nil, nil}, open, only(ofStep(rowdiff.Change{"state": is(2), "result": is("new"), moved: now}))},
		{"end a step with a reference", steps, s.StepEnd.Stmt, []any{theStep, ledger.StepRejected, nil, "other bank", "re_new"}, open, only(ofStep(rowdiff.Change{
			"state": is(3), "result": null, "provider": is("other bank"), "reference": is("re_new"), moved: now,
		}))},
		{"accept a step", steps, s.StepAccept, []any{theStep, "other bank", "re_new", hour}, open, only(ofStep(rowdiff.Change{
			"state": is(4), "provider": is("other bank"), "reference": is("re_new"), "deadline_at": rowdiff.Now(hour), moved: now,
		}))},
		{"accept a step without a reference", steps, s.StepAccept, []any{theStep, "other bank", nil, hour}, open, only(ofStep(rowdiff.Change{
			"state": is(4), "provider": is("other bank"), "deadline_at": rowdiff.Now(hour), moved: now,
		}))},
		{"take a step back", steps, s.StepReverse, []any{theStep, ledger.StepDone}, func(o *operation) bool { return o.stepState == ledger.StepDone }, takenBack},
		{"take a step back that an operator knew to be done", steps, s.StepReverse, []any{theStep, ledger.StepBegun}, func(o *operation) bool {
			return o.stepState == ledger.StepDone || o.stepState == ledger.StepBegun || o.stepState == ledger.StepAccepted
		}, takenBack},
		{"change a step's type", one, s.StepType, []any{theStep, "type"}, always, only(ofStep(rowdiff.Change{"result_type": is("type")}))},
		{
			"correct a step", steps, s.StepCorrect,
			[]any{theStep, ledger.StepRejected, []byte("new")},
			func(o *operation) bool { return o.stepState == ledger.StepDone || o.stepState == ledger.StepRejected },
			only(ofStep(rowdiff.Change{"state": is(3), "result": is("new"), moved: now})),
		},
		{"replace a reference", steps, s.StepRefer, []any{theStep, "other bank", "re_new", 1}, always, only(ofStep(rowdiff.Change{"provider": is("other bank"), "reference": is("re_new")}))},
		{"add a reference", steps, s.StepRefer, []any{theStep, "other bank", "re_new", 0}, func(o *operation) bool { return o.reference == nil }, only(ofStep(rowdiff.Change{"provider": is("other bank"), "reference": is("re_new")}))},
		{"keep a reference", steps, s.StepRefer, []any{theStep, nil, nil, 1}, always, only(rowdiff.Changes{})},
	}
}

func takenBack(o *operation) rowdiff.Changes {
	c := rowdiff.Change{moved: rowdiff.Now(0), "reversed_at": rowdiff.Now(0)}
	if o.stepReverse != nil {
		delete(c, "reversed_at")
	}
	return ofStep(c)
}

// bystanders are the operations beside the subject: by owner and hash, with their namespace and name.
var bystanders = []struct{ owner, letter, namespace, name string }{
	{"shop", "A", "default", "refund"},
	{"shop", "B", "default", "refund"},
	{"other", "A", "default", "refund"},
	{"other", "B", "default", "refund"},
	{"shop", "C", "elsewhere", "refund"},
	{"other", "C", "default", "refund"},
	{"shop", "D", "default", "payout"},
}

// world is the tables of a test.
type world struct {
	*conformance.Env[*sql.Tx]
	sql    ledger.SQL
	began  int64                   // in µs
	before map[string]rowdiff.Rows // by the name of a state
}

// fill writes the rows.
func (w *world) fill() {
	w.Helper()
	for n, o := range bystanders {
		id := at(o.owner, o.letter)
		w.Must(`INSERT INTO holdfast_staged (owner, key_hash, namespace, operation, op_key, fingerprint_version, request, state, result, result_type, holder, token, due_at, step, mode, started, finished, accepted, restored, version, reason, created_at, moved_at, finished_at, program, request_id)
VALUES ($1, $2, $3, $4, $5, 1, $6, 1, $7, 'old type', 'old', 1, 1, '', 3, 7, 4, 0, 0, $8, 'why', 1, 1, 1, 'old program', 'request 1')`,
			o.owner, id.Hash[:], o.namespace, o.name, []byte("key"), []byte("request"), []byte("old"), 10+n)
		for _, name := range []string{theStep, another} {
			key := ""
			if name == theStep {
				key = "key of " + o.owner + o.letter
			}
			w.Must(`INSERT INTO holdfast_steps (owner, key_hash, name, state, provider_key, result, result_type, token, starts, begun_at, moved_at)
VALUES ($1, $2, $3, 1, $4, $5, 'old type', 1, 3, 1, 1)`, o.owner, id.Hash[:], name, key, []byte("old"))
		}
		for _, event := range []string{"1", "2"} {
			w.Must(`INSERT INTO holdfast_provider_events (owner, key_hash, event_id, kind, body, received_at) VALUES ($1, $2, $3, $4, $5, 1)`,
				o.owner, id.Hash[:], []byte(event), "kind of "+o.owner+o.letter, []byte("body"))
		}
		w.Must(`INSERT INTO holdfast_interventions (owner, id, key_hash, namespace, action, by_whom, reason, happened_at) VALUES ($1, $2, $3, $4, 'resume', $5, 'why', 1)`,
			o.owner, []byte(fmt.Sprintf("%016d", n)), id.Hash[:], o.namespace, o.owner+o.letter)
	}
}

// within runs f on all operations in the state of o, in a transaction that is rolled back.
func (w *world) within(o *operation, f func(q core.Querier)) {
	w.Helper()
	tx, err := w.Begin(w.Ctx, sql.LevelDefault)
	w.Check(err)
	q, err := access.Of(w.DB).Join(tx)
	w.Check(err)
	exec := func(query string, args ...any) {
		w.Helper()
		_, err := q.Exec(w.Ctx, w.Rebind(query), args...)
		w.Check(err)
	}
	from := func(us int64) any {
		if us == 0 {
			return nil
		}
		return w.began + us
	}
	exec(`UPDATE holdfast_staged SET state = $1, attempt = $2, token = $3, due_at = $4, step = $5, accepted = $6, result_expires_at = $7, key_expires_at = $8, op_key = substr(op_key, 1, $9), fingerprint = $10, reversed_at = $11`,
		o.state, once.Nullable(o.attempt), o.token, w.began+o.due, o.step, o.accepted, from(o.resultExpires), from(o.keyExpires), len(o.key), once.Nullable(o.fingerprint), o.reversed)
	exec(`UPDATE holdfast_steps SET state = $1, provider = $2, reference = $3, deadline_at = $4, reversed_at = $5`, o.stepState, o.provider, o.reference, w.began+hour, o.stepReverse)
	f(q)
	w.Check(w.End(w.Ctx, tx, false))
}

func (w *world) now(q core.Querier) (now int64) {
	w.Helper()
	found, err := core.QueryRow(w.Ctx, q, []any{&now}, "SELECT "+access.Of(w.DB).Dialect.Now)
	if err != nil || !found {
		w.Fatal(found, err)
	}
	return now
}

func (w *world) rows(q core.Querier) rowdiff.Rows {
	w.Helper()
	key := []string{"owner", "key_hash"}
	short := func(table string) string { return strings.TrimPrefix(table, "holdfast_") }
	found := rowdiff.Read(w.Ctx, w, q, short, rowdiff.Table{Name: "holdfast_staged", Key: key},
		rowdiff.Table{Name: "holdfast_steps", Key: append(key, "name")}, rowdiff.Table{Name: "holdfast_provider_events", Key: append(key, "event_id")})
	all := rowdiff.Rows{}
	for name, row := range found {
		name = strings.Replace(name, row["key_hash"], row["key_hash"][:1], 1)
		all[strings.Replace(name, "provider_events", "events", 1)] = row
	}
	return all
}

// try runs a transition on the subject.
func (w *world) try(tr *transition, o *operation) {
	w.Helper()
	w.within(o, func(q core.Querier) {
		what := tr.name + ", " + o.name
		before := w.before[o.name]
		if before == nil {
			before = w.rows(q)
			w.before[o.name] = before
		}
		from := w.now(q)
		res, err := tr.stmt.Exec(w.Ctx, q, the.Args(tr.args...)...)
		w.Check(err)
		changes := rowdiff.Changes{}
		if tr.allowed(o) {
			changes = tr.changes(o)
		}
		if (res.Affected == 0) != !tr.allowed(o) && len(changes) > 0 {
			w.Errorf("%s: %d rows, and it is allowed: %v", what, res.Affected, tr.allowed(o))
		}
		rowdiff.Check(w, what, before, w.rows(q), changes, rowdiff.Clock{From: from, To: w.now(q)})
	})
}

// list runs a statement and returns its rows as text.
func (w *world) list(q core.Querier, stmt core.Stmt, args ...any) (all []string) {
	w.Helper()
	found, err := stmt.Query(w.Ctx, q, args...)
	w.Check(err)
	columns, err := found.Columns()
	w.Check(err)
	all, err = core.Collect(found, func(r core.Row) (string, error) {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		err := r.Scan(to...)
		texts := make([]string, len(values))
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			if texts[i] = fmt.Sprint(v); len(texts[i]) == 32 { // a hash
				texts[i] = texts[i][:1]
			}
		}
		return strings.Join(texts, " "), err
	})
	w.Check(err)
	return all
}

// reads checks what the statements find that read: the subject, or what is due of its namespace and name.
func (w *world) reads(o *operation) {
	w.Helper()
	w.within(o, func(q core.Querier) {
		want := func(what string, got []string, want ...string) {
			w.Helper()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				w.Errorf("%s, %s: %q, want %q", what, o.name, got, want)
			}
		}
		l := ledger.New(w.DB, ledger.Bounds{})
		for name, read := range map[string]func(context.Context, core.Querier, once.ID) (*ledger.Row, error){"read": l.Read, "latest": l.Latest} {
			row, err := read(w.Ctx, q, the)
			w.Check(err)
			expired := map[bool]int{true: 1}
			if row.State != o.state || row.Token != o.token || !bytes.Equal(row.Attempt, o.attempt) || row.Step != o.step || row.Accepted != o.accepted || (row.Left > 0) != (o.due > 0) ||
				row.ResultExpired != expired[o.resultExpires < 0] || row.KeyExpired != expired[o.keyExpires < 0] || row.Started != 7 || row.Finished != 4 || row.Reason != reason {
				w.Errorf("%s, %s: %+v", name, o.name, row)
			}
			for _, none := range []once.ID{at("nobody", "A"), at("shop", "Z")} {
				if row, err := read(w.Ctx, q, none); row != nil || err != nil {
					w.Errorf("%s of none: %+v, %v", name, row, err)
				}
			}
		}
		var due []string
		if o.state == ledger.Pending && o.due < 0 {
			due = []string{"other A", "other B", "other C", "shop A", "shop B"}
		}
		want("due", w.list(q, w.sql.Due, "default", "refund", 100), due...)
		if n := len(w.list(q, w.sql.Due, "default", "refund", 2)); n != min(2, len(due)) {
			w.Errorf("due: %d, the limit is 2", n)
		}
		st, err := l.Step(w.Ctx, q, the, theStep)
		w.Check(err)
		if st.State != o.stepState || st.Token != 1 || string(st.Result) != "old" || st.Age <= hour {
			w.Errorf("%s: the step is %+v", o.name, st)
		}
		for _, none := range []struct{ owner, letter, step string }{{"nobody", "A", theStep}, {"shop", "Z", theStep}, {"shop", "A", "none"}} {
			if st, err := l.Step(w.Ctx, q, at(none.owner, none.letter), none.step); st != nil || err != nil {
				w.Errorf("the step of %+v: %+v, %v", none, st, err)
			}
		}
		want("the step of a provider's key", w.list(q, w.sql.StepFind, "key of shopA", "default"), "shop A pay")
		want("of a namespace elsewhere", w.list(q, w.sql.StepFind, "key of shopC", "default"))
		want("of its own namespace", w.list(q, w.sql.StepFind, "key of shopC", "elsewhere"), "shop C pay")
		want("of no key", w.list(q, w.sql.StepFind, "", "default"))
		want("the names of steps", w.list(q, w.sql.StepNames, the.Args()...), another, theStep)
		if n := len(w.list(q, w.sql.Steps, the.Args()...)); n != 2 {
			w.Errorf("%d steps", n)
		}
		want("an event", w.list(q, w.sql.EventRead, the.Args([]byte("1"))...), "1")
		for _, none := range []struct{ owner, letter, event string }{{"nobody", "A", "1"}, {"shop", "Z", "1"}, {"shop", "A", "3"}} {
			want("an event that has not come", w.list(q, w.sql.EventRead, at(none.owner, none.letter).Args([]byte(none.event))...))
		}
		want("events", w.list(q, w.sql.EventList, the.Args()...), "1 kind of shopA body 1", "2 kind of shopA body 1")
		want("interventions", w.list(q, w.sql.Interventions, the.Args()...), "resume shopA why 1")
		want("an intervention", w.list(q, w.sql.Intervened, "shop", []byte("0000000000000000")), "1")
		want("another owner's", w.list(q, w.sql.Intervened, "other", []byte("0000000000000000")))
		want("one that was not made", w.list(q, w.sql.Intervened, "shop", []byte("9999999999999999")))
		if o.reference == nil {
			return
		}
		// References of a step: one provider's name for one call of an owner.
		for _, x := range bystanders {
			_, err := q.Exec(w.Ctx, w.Rebind(`UPDATE holdfast_steps SET reference = $1 WHERE owner = $2 AND key_hash = $3 AND name = $4`), "re_"+x.letter, x.owner, at(x.owner, x.letter).Args()[1], theStep)
			w.Check(err)
		}
		want("a reference", w.list(q, w.sql.ReferenceFind, "shop", "bank", "re_A", "default"), "A pay")
		want("an unknown one", w.list(q, w.sql.ReferenceFind, "shop", "bank", "re_Z", "default"))
		want("another provider's", w.list(q, w.sql.ReferenceFind, "shop", "other bank", "re_A", "default"))
		want("another namespace's", w.list(q, w.sql.ReferenceFind, "shop", "bank", "re_C", "default"))
		want("another owner's", w.list(q, w.sql.ReferenceFind, "nobody", "bank", "re_A", "default"))
	})
}

// inserts writes new rows beside those that are there, with a floor of the tokens in the past and in the
// future. An existing operation stays as it is.
func (w *world) inserts() {
	w.Helper()
	is := rowdiff.Is
	for _, floor := range []int64{3, future} {
		w.within(&states()[0], func(q core.Querier) {
			_, err := q.Exec(w.Ctx, w.Rebind(`UPDATE holdfast_floor SET token = $1`), floor)
			w.Check(err)
			for _, id := range []once.ID{the, at("shop", "N")} {
				before, from := w.rows(q), w.now(q)
				_, err = w.sql.Insert.Exec(w.Ctx, q, id.Args("default", "refund", []byte("k"), nil, 1, []byte("r"), mine, "me", hour, "type", 1, "program", "request")...)
				w.Check(err)
				changes := rowdiff.Changes{}
				if id != the {
					changes["staged shop N"] = rowdiff.Change{
						"state": is(1), "attempt": is(string(mine)), "holder": is("me"), "due_at": rowdiff.Now(hour), "created_at": rowdiff.Now(0), moved: rowdiff.Now(0), "started": is(1), "finished": is(0),
						"token": func(_, is string, now rowdiff.Clock) bool {
							return rowdiff.Raised(fmt.Sprint(floor), is, now)
						},
					}
				}
				rowdiff.Check(w, "insert", before, w.rows(q), changes, rowdiff.Clock{From: from, To: w.now(q)})
			}
			before, from := w.rows(q), w.now(q)
			_, err = w.sql.StepInsert.Stmt.Exec(w.Ctx, q, the.Args("new", ledger.StepBegun, "its key", nil, token, "type")...)
			w.Check(err)
			_, err = w.sql.EventInsert.Exec(w.Ctx, q, the.Args([]byte("3"), "kind", []byte("body"))...)
			w.Check(err)
			_, err = w.sql.EventBegin.Exec(w.Ctx, q, the.Args([]byte("4"), "kind", []byte("body"))...)
			w.Check(err)
			rowdiff.Check(w, "insert parts", before, w.rows(q), rowdiff.Changes{
				"steps shop A new": {"state": is(1), "provider_key": is("its key"), "token": is(token), "starts": is(1), "begun_at": rowdiff.Now(0), moved: rowdiff.Now(0)},
				"events shop A 3":  {"kind": is("kind"), "body": is("body"), "received_at": rowdiff.Now(0)},
				"events shop A 4":  {"kind": is("kind"), "body": is("body"), "received_at": is(0)},
			}, rowdiff.Clock{From: from, To: w.now(q)})
			before, from = w.rows(q), w.now(q)
			ended := int64(0)
			for _, event := range []string{"3", "4", "4"} { // only one has not ended
				res, err := w.sql.EventEnd.Exec(w.Ctx, q, the.Args([]byte(event))...)
				w.Check(err)
				ended += res.Affected
			}
			if ended != 1 {
				w.Errorf("%d events ended, want 1", ended)
			}
			rowdiff.Check(w, "end an event", before, w.rows(q), rowdiff.Changes{"events shop A 4": {"received_at": rowdiff.Now(0)}}, rowdiff.Clock{From: from, To: w.now(q)})
		})
	}
}

package staged

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

func who() holdfast.Actor {
	return holdfast.Actor{By: "ana@ops", Reason: "asked the bank, ticket 7"}
}

// parkedAt parks an operation at its external call, after the money moved.
func parkedAt[Tx any](e *env[Tx], key string) (*refund[Tx], *staged.Runner[string, string, Tx]) {
	e.Helper()
	f, s := e.stagedRefunds(0)
	f.call = func(_ context.Context, key string) (string, error) { f.provider.pay(key); return "", errTimeout }
	var parked *staged.ParkedError
	if _, err := s.Do(e.Ctx, stagedOp(key), key); !errors.As(err, &parked) {
		e.Fatal(err)
	}
	return f, s
}

// unfinished parks an operation outside any step: its attempts are used up.
func unfinished[Tx any](e *env[Tx], key string) (*refund[Tx], *staged.Runner[string, string, Tx]) {
	e.Helper()
	f := &refund[Tx]{e: e, provider: newProvider()}
	f.before = func(n int) error { return map[int]error{1: errTimeout}[n] }
	stages := f.stages()
	stages.MaxAttempts = 1
	s := e.staged(stages, idempotency.Options{})
	var parked *staged.ParkedError
	if _, err := s.Do(e.Ctx, stagedOp(key), key); !errors.As(err, &parked) {
		e.Fatal(err)
	}
	return f, s
}

// operatorsResolve checks each legal resolution, with its actor and reason.
func operatorsResolve[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "an operator works alone")
	ops := operators.New(e.Store(idempotency.Options{}))
	rejection := &idempotency.Rejection{Code: "lost", Message: "written off"}
	for _, c := range []struct {
		name            string
		park            func(e *env[Tx], key string) (*refund[Tx], *staged.Runner[string, string, Tx])
		r               operators.Resolution
		then            idempotency.State // immediately
		state           idempotency.State // finally
		action, value   string
		payments, calls int
	}{
		{"done", parkedAt[Tx], operators.Resolution{Step: staged.StepDone, StepResult: "bank 7"}, idempotency.StateWaiting, idempotency.StateSucceeded, "resolve step as done", "bank 7", 1, 1},
		{"refused", parkedAt[Tx], operators.Resolution{Step: staged.StepRejected, Rejection: rejection}, idempotency.StateWaiting, idempotency.StateRejected, "resolve step as rejected", "", 1, 1},
		{"not done", parkedAt[Tx], operators.Resolution{Step: staged.StepNotDone}, idempotency.StateWaiting, idempotency.StateSucceeded, "resolve step as not done", "again", 1, 2},
		{"succeed", parkedAt[Tx], operators.Resolution{Succeed: true, Result: "by hand"}, idempotency.StateSucceeded, idempotency.StateSucceeded, "resolve as succeeded", "by hand", 1, 1},
		{"reject", parkedAt[Tx], operators.Resolution{Reject: true, Rejection: rejection}, idempotency.StateRejected, idempotency.StateRejected, "resolve as rejected", "", 1, 1},
		{"resume", unfinished[Tx], operators.Resolution{Resume: true}, idempotency.StateWaiting, idempotency.StateSucceeded, "resume", "again", 1, 1},
		{"succeed unfinished", unfinished[Tx], operators.Resolution{Succeed: true, Result: "by hand"}, idempotency.StateSucceeded, idempotency.StateSucceeded, "resolve as succeeded", "by hand", 0, 0},
	} {
		f, s := c.park(e, c.name)
		f.call = func(_ context.Context, key string) (string, error) { f.provider.pay(key); return "again", nil }
		token := e.show(c.name).Token
		if err := ops.Resolve(e.Ctx, ref(c.name), c.r, who()); err != nil {
			e.Errorf("%s: %v", c.name, err)
			continue
		}
		op := e.wantState(c.name, c.then)
		if len(op.Interventions) != 1 || op.Interventions[0].Action != c.action || op.Interventions[0].By != who().By || op.Interventions[0].Reason != who().Reason || op.Token <= token {
			e.Errorf("%s: token %d after %d, %+v", c.name, op.Token, token, op.Interventions)
		}
		r, err := s.Do(e.Ctx, stagedOp(c.name), c.name)
		var rej *idempotency.Rejection
		if c.state == idempotency.StateRejected && (!errors.As(err, &rej) || rej.Code != "lost") || c.state == idempotency.StateSucceeded && (err != nil || r.Value != c.value) {
			e.Errorf("%s: then %v, %v", c.name, r, err)
		}
		e.wantState(c.name, c.state)
		f.provider.want(e, c.payments, c.calls)
		e.WantOnce(c.name)
	}
}

// operatorsIllegal checks that every resolution in a state that does not allow it returns a
// typed error and changes nothing.
func operatorsIllegal[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "an operator works alone")
	ops := operators.New(e.Store(idempotency.Options{}))
	rej := &idempotency.Rejection{Code: "lost"}
	all := map[string]operators.Resolution{
		"step done": {Step: staged.StepDone}, "step rejected": {Step: staged.StepRejected, Rejection: rej}, "step not done": {Step: staged.StepNotDone},
		"resume": {Resume: true}, "succeed": {Succeed: true}, "reject": {Reject: true, Rejection: rej}, "free": {Free: true},
	}
	boom := errors.New("boom")
	f, s := e.stagedRefunds(0)
	f.before = func(n int) error { return map[int]error{1: boom}[n] }
	if _, err := s.Do(e.Ctx, stagedOp("waiting"), "waiting"); !errors.Is(err, boom) {
		e.Error(err)
	}
	for _, key := range []string{"succeeded", "erased"} {
		if _, err := s.Do(e.Ctx, stagedOp(key), key); err != nil {
			e.Error(err)
		}
	}
	if err := ops.Erase(e.Ctx, ref("erased"), who()); err != nil {
		e.Error(err)
	}
	f.before = func(int) error { return idempotency.Reject("no", "no") }
	if _, err := s.Do(e.Ctx, stagedOp("rejected"), "rejected"); err == nil {
		e.Error("not rejected")
	}
	parkedAt(e, "at a step")
	unfinished(e, "at no step")
	if _, err := e.Do(e.Store(idempotency.Options{}), conformance.Op("record")); err != nil {
		e.Error(err)
	}
	legal := map[string][]string{
		"at a step":  {"step done", "step rejected", "step not done", "succeed", "reject"},
		"at no step": {"resume", "succeed", "reject"},
	}
	for key, state := range map[string]idempotency.State{
		"waiting": idempotency.StateWaiting, "succeeded": idempotency.StateSucceeded, "rejected": idempotency.StateRejected, "erased": idempotency.StateSucceededExpired,
		"at a step": idempotency.StateUnknown, "at no step": idempotency.StateUnknown, "record": idempotency.StateSucceeded,
	} {
		before := e.show(key)
		for name, r := range all {
			if slices.Contains(legal[key], name) {
				continue
			}
			err := ops.Resolve(e.Ctx, ref(key), r, who())
			var typed *staged.StateError
			if !errors.Is(err, staged.ErrState) || !errors.As(err, &typed) || typed.Hint == "" || typed.State == nil || typed.Step == "" && typed.State != state {
				e.Errorf("%s of %s: %v", name, key, err)
			}
		}
		after := e.wantState(key, state)
		if len(after.Interventions) != len(before.Interventions) || after.Token != before.Token {
			e.Errorf("%s: refused resolutions left %+v", key, after)
		}
		if state == idempotency.StateWaiting || state == idempotency.StateUnknown || state == idempotency.StateSucceededExpired {
			if err := ops.Erase(e.Ctx, ref(key), who()); !errors.Is(err, staged.ErrState) {
				e.Errorf("erasing %s: %v", key, err)
			}
		}
	}
	for name, bad := range map[string]error{
		"nothing set":  ops.Resolve(e.Ctx, ref("at a step"), operators.Resolution{}, who()),
		"two set":      ops.Resolve(e.Ctx, ref("at a step"), operators.Resolution{Succeed: true, Resume: true}, who()),
		"no rejection": ops.Resolve(e.Ctx, ref("at a step"), operators.Resolution{Reject: true}, who()),
		"no reason":    ops.Resolve(e.Ctx, ref("at a step"), operators.Resolution{Succeed: true}, holdfast.Actor{By: "ana"}),
		"nobody":       ops.Erase(e.Ctx, ref("succeeded"), holdfast.Actor{Reason: "why"}),
		"long reason":  ops.Erase(e.Ctx, ref("succeeded"), holdfast.Actor{By: "ana", Reason: strings.Repeat("r", 501)}),
		"no key":       ops.Erase(e.Ctx, staged.Ref{Name: "refund"}, who()),
	} {
		if !errors.Is(bad, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, bad)
		}
	}
	for _, err := range []error{ops.Resolve(e.Ctx, ref("none"), all["succeed"], who()), ops.Erase(e.Ctx, ref("none"), who())} {
		if !errors.Is(err, staged.ErrNotFound) {
			e.Error(err)
		}
	}
	if _, err := ops.Show(e.Ctx, ref("none")); !errors.Is(err, staged.ErrNotFound) {
		e.Error(err)
	}
}

func operatorsList[Tx any](e *env[Tx]) {
	ops := operators.New(e.Store(idempotency.Options{}))
	for n := range 5 {
		parkedAt(e, fmt.Sprint("unknown ", n))
	}
	boom := errors.New("boom")
	f, s := e.stagedRefunds(0)
	f.before = func(int) error { return boom }
	if _, err := s.Do(e.Ctx, stagedOp("stuck"), "stuck"); !errors.Is(err, boom) {
		e.Error(err)
	}
	keys := func(f operators.Filter) (keys []string) {
		for {
			page, err := core.First(2, ops.List(e.Ctx, f))
			if err != nil {
				e.Fatal(err)
			}
			for _, op := range page {
				keys = append(keys, op.Key)
				f.After = op
			}
			if len(page) < 2 {
				slices.Sort(keys)
				return keys
			}
		}
	}
	unknown := []string{"unknown 0", "unknown 1", "unknown 2", "unknown 3", "unknown 4"}
	for name, f := range map[string]operators.Filter{
		"default": {}, "by name": {Name: "refund"}, "explicit": {States: []idempotency.State{idempotency.StateUnknown}},
	} {
		if got := keys(f); !slices.Equal(got, unknown) {
			e.Errorf("%s: %v", name, got)
		}
	}
	if got := keys(operators.Filter{Name: "another"}); len(got) != 0 {
		e.Errorf("another name: %v", got)
	}
	if got := keys(operators.Filter{Owner: "another"}); len(got) != 0 {
		e.Errorf("another owner: %v", got)
	}
	for text, want := range map[string][]string{"own 3": {"unknown 3"}, "unknown ": unknown, "OWN 3": nil, "known  3": nil, "\xff": nil} {
		if got := keys(operators.Filter{Key: text}); !slices.Equal(got, want) {
			e.Errorf("with %q in the key: %v", text, got)
		}
	}
	page, err := core.First(1, ops.List(e.Ctx))
	if err != nil || len(page) != 1 {
		e.Fatal(page, err)
	}
	if op, err := ops.ShowID(e.Ctx, page[0].ID); err != nil || op.Ref != page[0].Ref || len(op.Steps) == 0 {
		e.Errorf("by its ID: %+v, %v", op, err)
	}
	another := operators.New(e.Store(idempotency.Options{Namespace: "another"}))
	for _, o := range []func() (*staged.Operation, error){
		func() (*staged.Operation, error) { return another.ShowID(e.Ctx, page[0].ID) },
		func() (*staged.Operation, error) { return ops.ShowID(e.Ctx, make([]byte, 32)) },
		func() (*staged.Operation, error) { return ops.ShowID(e.Ctx, []byte("short")) },
	} {
		if op, err := o(); op != nil || !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("got %+v, %v", op, err)
		}
	}
	waiting := []idempotency.State{idempotency.StateWaiting}
	if got := keys(operators.Filter{States: waiting}); !slices.Equal(got, []string{"stuck"}) {
		e.Errorf("waiting: %v", got)
	}
	if got := keys(operators.Filter{States: waiting, Overdue: time.Hour}); len(got) != 0 {
		e.Errorf("overdue by an hour: %v", got)
	}
	time.Sleep(50 * time.Millisecond)
	if got := keys(operators.Filter{States: waiting, Overdue: 10 * time.Millisecond}); !slices.Equal(got, []string{"stuck"}) {
		e.Errorf("stuck: %v", got)
	}
	none, beyond := []idempotency.State{idempotency.StateAbsent}, []idempotency.State{idempotency.StateRejectedExpired + 1}
	for _, bad := range []operators.Filter{{Overdue: -1}, {After: staged.Operation{ID: []byte("short")}}, {States: none}, {States: beyond}} {
		if _, err := core.First(1, ops.List(e.Ctx, bad)); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", bad, err)
		}
	}
}

// operatorsRecords checks that a claim of Do which was committed without a result is unknown
// too, and has the same resolutions.
func operatorsRecords[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{KeyTTL: 2 * time.Hour, RejectionTTL: time.Hour})
	ops := operators.New(s)
	rej := &idempotency.Rejection{Code: "lost"}
	for name, r := range map[string]operators.Resolution{
		"succeed": {Succeed: true, Result: "by hand"}, "reject": {Reject: true, Rejection: rej}, "free": {Free: true},
	} {
		if _, err := e.Do(s, conformance.Op(name)); err != nil {
			e.Error(err)
		}
		e.Must(`UPDATE holdfast_records SET state = 1, result = NULL, finished_at = NULL WHERE op_key = $1`, []byte(name))
		if _, err := e.Do(s, conformance.Op(name)); !errors.Is(err, idempotency.ErrUnknown) {
			e.Errorf("%s: %v", name, err)
		}
		list, err := core.First(9, ops.List(e.Ctx, operators.Filter{Records: true}))
		if err != nil || len(list) != 1 || list[0].Key != name || list[0].State != idempotency.StateUnknown || list[0].Staged {
			e.Errorf("%s: %+v, %v", name, list, err)
		}
		for _, illegal := range []operators.Resolution{{Resume: true}, {Step: staged.StepDone}} {
			if err := ops.Resolve(e.Ctx, ref(name), illegal, who()); !errors.Is(err, staged.ErrState) {
				e.Errorf("%s: %v", name, err)
			}
		}
		if err := ops.Erase(e.Ctx, ref(name), who()); !errors.Is(err, staged.ErrState) {
			e.Errorf("%s: erasing it: %v", name, err)
		}
		if err := ops.Resolve(e.Ctx, ref(name), r, who()); err != nil {
			e.Errorf("%s: %v", name, err)
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE result_expires_at IS NULL OR key_expires_at IS NULL OR key_expires_at - finished_at > 3 * 3600000000`); n != 0 {
			e.Errorf("%s: %d records are kept for ever", name, n)
		}
		got, err := e.Do(s, conformance.Op(name))
		var rejected *idempotency.Rejection
		switch name {
		case "succeed":
			if err != nil || got.Value != "by hand" || got.Outcome != idempotency.Replayed {
				e.Errorf("%s: %v, %v", name, got, err)
			}
		case "reject":
			if !errors.As(err, &rejected) || rejected.Code != "lost" {
				e.Errorf("%s: %v", name, err)
			}
		case "free":
			if err != nil || got.Outcome != idempotency.Executed {
				e.Errorf("%s: %v, %v", name, got, err)
			}
		}
		if op := e.show(name); len(op.Interventions) != 1 || op.Interventions[0].By != who().By {
			e.Errorf("%s: %+v", name, op.Interventions)
		}
	}
	resolvedBesideStaged(e, ops)
}

func operatorsErase[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	ops := operators.New(store)
	f, s := e.stagedRefunds(0)
	const secret = "IBAN DE00"
	f.call = func(_ context.Context, key string) (string, error) { return f.provider.pay(key) + secret, nil }
	if _, err := s.Do(holdfast.WithRequestID(e.Ctx, "request"), idempotency.Op{Key: "a"}, secret); err != nil {
		e.Fatal(err)
	}
	if _, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "1", Ref: ref("a"), Kind: "paid", Body: []byte(secret)}, nil); err != nil {
		e.Error(err)
	}
	if _, err := e.Do(store, conformance.Op("record")); err != nil {
		e.Error(err)
	}
	count := func() (n int) {
		for _, q := range []string{
			`SELECT COUNT(*) FROM holdfast_staged WHERE request IS NOT NULL OR result IS NOT NULL`,
			`SELECT COUNT(*) FROM holdfast_staged WHERE request_id IS NOT NULL`,
			`SELECT COUNT(*) FROM holdfast_steps WHERE result IS NOT NULL`,
			`SELECT COUNT(*) FROM holdfast_provider_events WHERE body IS NOT NULL OR kind <> ''`,
			`SELECT COUNT(*) FROM holdfast_records WHERE result IS NOT NULL`,
		} {
			n += e.Int(q)
		}
		return n
	}
	// A function of Do may start an operation under its own name and key.
	op := idempotency.Op{Name: "refund", Key: "a", NoFingerprint: true}
	if _, err := idempotency.Do(e.Ctx, store, op, func(context.Context, Tx) (string, error) { return secret, nil }); err != nil {
		e.Error(err)
	}
	if n := count(); n != 1+1+3+1+2 {
		e.Errorf("%d rows with contents", n)
	}
	for _, key := range []string{"a", "record"} {
		if err := ops.Erase(e.Ctx, ref(key), who()); err != nil {
			e.Error(err)
		}
		if op := e.wantState(key, idempotency.StateSucceededExpired); len(op.Interventions) != 1 || op.Interventions[0].Action != "erase" {
			e.Errorf("%+v", op)
		}
	}
	if n := count(); n != 0 {
		e.Errorf("%d rows with contents are left", n)
	}
	if _, err := s.Do(e.Ctx, idempotency.Op{Key: "a"}, secret); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("a duplicate: %v", err)
	}
	if _, err := s.Do(e.Ctx, idempotency.Op{Key: "a"}, "another"); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("a mismatch: %v", err)
	}
	if _, err := e.Do(store, conformance.Op("record")); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("a duplicate of the record: %v", err)
	}
	f.provider.want(e, 1, 1)
	f.e.WantOnce(secret)
}

package hostile

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// Owners is the suite of an owner that tries to get the results of another. Each attempt has
// the attacker's own authenticated name; everything else is free.
func Owners[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	dbtest.NotUnderRace(t, "one owner after the other")
	for name, f := range map[string]func(*env[Tx]){
		"OwnerReadsNoResult": ownerReadsNoResult[Tx],
		"OwnerReadsNoStaged": ownerReadsNoStaged[Tx],
		"OwnerErasesItsOwn":  ownerErasesItsOwn[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

const secret = "what shop-7 was paid"

// victim is the operation whose result the attacker wants.
func victim() idempotency.Op {
	return idempotency.Op{Owner: "shop-7", Name: "refund", Key: "42/1", Request: map[string]int{"cents": 1250}}
}

// twins returns names that a collation, a normalization or a trim would treat as shop-7.
func twins() []string {
	return []string{
		"shop-7 ", " shop-7", "shop-7\t", "shop-7\n", "shop-7\r", "SHOP-7", "Shop-7", "sh\u00f6p-7", "sho\u0301p-7", "\u017fhop-7", "shop-\u0667",
		"shop-\uff17", "\uff53hop-7", "shop\u00ad-7", "shop\u200b-7", "\ufeffshop-7", "shop\u20117", "shop\u22127", "shop-7\u00a0", "shop-7.", "shop-7%", "shop_7", "shop%",
		`shop-7\`, "shop-7'", `"shop-7"`, "shop-7;", "shop-7,shop-8", "shop-8,shop-7", "shop-7/refund", "shop-7|refund", "shop-7:refund", "shop-7\x1frefund",
		"*", "%", "default", "default/shop-7",
	}
}

// attempts returns operations with which another owner asks for the victim's result.
func attempts() map[string]idempotency.Op {
	out := map[string]idempotency.Op{}
	try := func(what string, change func(*idempotency.Op)) {
		op := victim()
		op.Owner = "mallory"
		change(&op)
		out[what] = op
	}
	try("the same", func(*idempotency.Op) {})
	for _, twin := range twins() {
		try("owner "+twin, func(o *idempotency.Op) { o.Owner = twin })
	}
	// The boundaries between the parts are shifted.
	for _, sep := range []string{"", "/", "\x1f", ":", "|"} {
		try("owner and name as one, "+sep, func(o *idempotency.Op) { o.Owner, o.Name = "shop-7"+sep+"re", "fund" })
		try("name and key as one, "+sep, func(o *idempotency.Op) { o.Name, o.Key = "refund"+sep+"4", "2/1" })
		try("all in the key, "+sep, func(o *idempotency.Op) { o.Key = strings.Join([]string{"default", "shop-7", "refund", "42/1"}, sep) })
		try("all in the name, "+sep, func(o *idempotency.Op) { o.Name = strings.Join([]string{"shop-7", "refund"}, sep) })
	}
	try("a shorter owner", func(o *idempotency.Op) { o.Owner, o.Name = "shop-", "7refund" })
	try("a longer owner", func(o *idempotency.Op) { o.Owner, o.Name = "shop-7refun", "d" })
	for what, key := range map[string]string{
		"NUL behind": "42/1\x00", "NUL before": "\x0042/1", "escaped": "42%2F1", "a path": "../shop-7/42/1", "a length before it": "\x00\x00\x00\x00\x00\x00\x00\x0442/1",
		"blank behind": "42/1 ",
	} {
		try("key with "+what, func(o *idempotency.Op) { o.Key = key })
	}
	try("no fingerprint", func(o *idempotency.Op) { o.Owner, o.Request, o.NoFingerprint = "mallory 2", nil, true })
	return out
}

// ownerReadsNoResult checks that an attempt has the same outcome as without the victim: it
// executes or is refused on its own. A replay, a mismatch or "in progress" would reveal the
// victim.
func ownerReadsNoResult[Tx any](e *env[Tx]) {
	e.ManyOwners()
	s, err := idempotency.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	pay := func(store *idempotency.Store[Tx], op idempotency.Op, result string) (idempotency.Result[string], error) {
		return idempotency.Do(e.Ctx, store, op, func(context.Context, Tx) (string, error) { return result, nil })
	}
	if _, err := pay(s, victim(), secret); err != nil {
		e.Fatal(err)
	}
	own := func(what string, r idempotency.Result[string], err error) {
		e.Helper()
		if err != nil || r.Outcome != idempotency.Executed || r.Value != "own" {
			e.Errorf("%s: %v %q, %v", what, r.Outcome, r.Value, err)
		}
	}
	for what, op := range attempts() {
		r, err := pay(s, op, "own")
		own(what, r, err)
		other := op
		other.Request, other.NoFingerprint = map[string]int{"cents": 1}, false
		if op.NoFingerprint {
			continue
		}
		if _, err := pay(s, other, "own"); !errors.Is(err, idempotency.ErrMismatch) {
			e.Errorf("%s: its own record was not compared: %v", what, err) // so the attempt was a real one
		}
	}
	// Stores with other scopes on the same tables.
	for what, o := range map[string]idempotency.Options{
		"a namespace": {Namespace: "Default"}, "a part of a namespace": {Namespace: "defaul"}, "a namespace of two parts": {Namespace: "default\x1fshop-7"},
		"no owners": {}, "no owners, a namespace": {Namespace: "defaultshop-7"},
	} {
		store, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.AnyOwner), o)
		if err != nil {
			e.Fatal(err)
		}
		op := victim()
		if strings.HasPrefix(what, "no owners") {
			op.Owner = ""
		}
		if o.Namespace == "defaul" {
			op.Owner = "tshop-7"
		}
		r, err := pay(store, op, "own")
		own(what, r, err)
	}
	for _, bad := range []string{"", "shop-7\x00", "\x00shop-7", "shop-7\xff", "\xc0\xafshop-7", strings.Repeat("s", idempotency.MaxName+1)} {
		op := victim()
		op.Owner = bad
		var input *holdfast.InputError
		if _, err := pay(s, op, "own"); !errors.As(err, &input) || input.Field != "Op.Owner" {
			e.Errorf("owner %.20q: %v", bad, err)
		}
	}
	// Messages: the attacker chooses the consumer's name and the id.
	in, err := inbox.New(s, "refund")
	if err != nil {
		e.Fatal(err)
	}
	for _, m := range []inbox.Message{{Owner: "shop-7", ID: "m"}, {Owner: "mallory", ID: "m"}, {Owner: "shop-7 ", ID: "m"}, {Owner: "SHOP-7", ID: "m"}} {
		if outcome, err := in.Process(e.Ctx, m, func(context.Context, Tx) error { return nil }); err != nil || outcome != idempotency.Executed {
			e.Errorf("message of %q: %v, %v", m.Owner, outcome, err)
		}
	}
	// The victim's result is unchanged.
	if r, err := pay(s, victim(), "again"); err != nil || r.Outcome != idempotency.Replayed || r.Value != secret {
		e.Errorf("the victim: %v, %v", r, err)
	}
	ops := operators.New(s)
	for _, twin := range twins() {
		list, err := core.First(9, ops.List(e.Ctx, operators.Filter{Owner: twin, Key: "42/1", Records: true, States: []idempotency.State{idempotency.StateSucceeded}}))
		if err != nil {
			e.Fatal(err)
		}
		for _, op := range list {
			if op.Owner != twin {
				e.Errorf("the list of %q has an operation of %q", twin, op.Owner)
			}
		}
	}
}

// ownerReadsNoStaged tries its own operation, a provider's key, and an event.
func ownerReadsNoStaged[Tx any](e *env[Tx]) {
	e.ManyOwners()
	store, err := idempotency.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	keys := map[string]string{}
	run := func(op idempotency.Op, result string) (idempotency.Result[string], string, error) {
		e.Helper()
		var given string
		s, err := staged.New(store, staged.Workflow[int, string, Tx]{
			Name: op.Name, Run: func(ctx context.Context, r *staged.Run[Tx], _ int) (string, error) {
				return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(_ context.Context, key string) (string, error) {
					given = key
					return result, nil
				})
			},
		})
		if err != nil {
			e.Fatal(err)
		}
		op.Request = nil
		r, err := s.Do(e.Ctx, op, 1250)
		if want := s.ProviderKey(staged.Ref{Owner: op.Owner, Key: op.Key}, "pay"); given != "" && given != want {
			e.Errorf("%q: the provider was given %s, not %s", op.Owner, given, want)
		}
		return r, given, err
	}
	_, given, err := run(victim(), secret)
	if err != nil {
		e.Fatal(err)
	}
	keys[given] = "the victim"
	for what, op := range attempts() {
		r, given, err := run(op, "own")
		if err != nil || r.Outcome != idempotency.Executed || r.Value != "own" {
			e.Errorf("%s: %v %q, %v", what, r.Outcome, r.Value, err)
		}
		if was, there := keys[given]; there {
			e.Errorf("%s and %s have one key at the provider", what, was)
		}
		keys[given] = what
		ref := staged.Ref{Owner: op.Owner, Name: op.Name, Key: op.Key + "?"}
		if _, err := operators.New(store).Show(e.Ctx, ref); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("%s: %v", what, err)
		}
	}
	for _, twin := range twins() {
		n := staged.ProviderEvent{ID: "evt", Ref: staged.Ref{Owner: twin, Name: "refund", Key: "42/1\x00\x00"}}
		if _, err := staged.HandleEvent(e.Ctx, store, n, nil); !errors.Is(err, staged.ErrNotFound) {
			e.Errorf("events for %q: %v", twin, err)
		}
	}
	for _, key := range []string{strings.ToUpper(given), given + " ", given[:39], "%", given + "\x00", " " + given} {
		if _, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: "evt", ProviderKey: key}, nil); err == nil {
			e.Errorf("events by the key %q found an operation", key)
		}
	}
}

// ownerErasesItsOwn checks that an owner erases only its own data.
func ownerErasesItsOwn[Tx any](e *env[Tx]) {
	e.ManyOwners()
	s, err := idempotency.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	pay := func(op idempotency.Op) (idempotency.Result[string], error) {
		return idempotency.Do(e.Ctx, s, op, func(context.Context, Tx) (string, error) { return secret, nil })
	}
	if _, err := pay(victim()); err != nil {
		e.Fatal(err)
	}
	for _, twin := range twins() {
		for _, name := range []string{"", "refund", "REFUND", "%"} {
			if n, err := s.EraseScope(e.Ctx, idempotency.Erasure{Owner: twin, Name: name, Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); err != nil || n != 0 {
				e.Errorf("%q erased %d records of %q, %v", twin, n, name, err)
			}
		}
	}
	if n, err := s.EraseScope(e.Ctx, idempotency.Erasure{Owner: "shop-7", Name: "REFUND", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); err != nil || n != 0 {
		e.Errorf("another operation: %d, %v", n, err)
	}
	if _, err := s.EraseScope(e.Ctx, idempotency.Erasure{Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no owner: %v", err)
	}
	if r, err := pay(victim()); err != nil || r.Value != secret {
		e.Errorf("the victim: %v, %v", r, err)
	}
}

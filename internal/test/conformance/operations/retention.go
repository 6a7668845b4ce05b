package operations

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// issue makes a receipt under key, or rejects it.
func (e *env[Tx]) issue(s *idempotency.Store[Tx], op idempotency.Op, reject bool) (idempotency.Result[receipt], error) {
	return idempotency.Do(e.Ctx, s, op, func(ctx context.Context, tx Tx) (receipt, error) {
		if reject {
			return receipt{}, idempotency.Reject("no", "personal")
		}
		return receipt{No: "no of " + op.Key, Lines: []string{"personal"}}, e.Effect(ctx, tx, op.Key)
	})
}

// tombstoned fails unless a call for key reports that it is done and with which outcome.
func (e *env[Tx]) tombstoned(s *idempotency.Store[Tx], op idempotency.Op, businessID string, rejected bool) {
	e.Helper()
	_, err := e.issue(s, op, false)
	var x *idempotency.ExpiredError
	if !errors.Is(err, idempotency.ErrExpired) || !errors.As(err, &x) || x.BusinessID != businessID || x.Rejected != rejected {
		e.Errorf("%s: %v (%+v), want a tombstone of %q, rejected %v", op.Key, err, x, businessID, rejected)
	}
}

// bodyAndKeyApart expires the result first. The key still reports that the operation is done,
// before and after the reaper runs. Then the key expires, and the operation may run again.
func bodyAndKeyApart[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{ResultTTL: time.Hour, KeyTTL: 2 * time.Hour})
	if _, err := e.issue(s, conformance.Op("done"), false); err != nil {
		e.Fatal(err)
	}
	_, _ = e.issue(s, conformance.Op("refused"), true)
	all := func(want string, keys int) {
		e.Helper()
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != keys {
			e.Errorf("%s: %d records, want %d", want, n, keys)
		}
		e.tombstoned(s, conformance.Op("done"), "no of done", false)
		e.tombstoned(s, conformance.Op("refused"), "", true)
		e.WantOnce("done")
	}
	e.Expire("result_expires_at", "done")
	e.Expire("result_expires_at", "refused")
	all("expired, not yet reaped", 2)
	r := e.Reaper(reaper.Options{})
	e.Sweep(r, 2, 0)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE result IS NOT NULL`); n != 0 {
		e.Errorf("%d results are left", n)
	}
	all("reaped", 2)
	e.Sweep(r, 0, 0)
	e.Expire("key_expires_at", "done")
	e.Sweep(r, 0, 1)
	if res, err := e.issue(s, conformance.Op("done"), false); err != nil || res.Outcome != idempotency.Executed || e.Effects("done") != 2 {
		e.Errorf("a key past its life: %v, %v", res, err)
	}
}

// forEver sets no TTL: no record ever becomes due, not even for a clock far ahead.
func forEver[Tx any](e *env[Tx]) {
	for i, o := range []idempotency.Options{{}, {ResultTTL: time.Hour}} {
		if _, err := e.issue(e.Store(o), conformance.Op(fmt.Sprint(i)), false); err != nil {
			e.Fatal(err)
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE key_expires_at IS NULL`); n != 2 {
		e.Errorf("%d keys for ever", n)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE result_expires_at IS NULL`); n != 1 {
		e.Errorf("%d results for ever", n)
	}
	e.Must(`UPDATE holdfast_records SET created_at = 1, finished_at = 2`)
	e.Sweep(e.Reaper(reaper.Options{}), 0, 0)
	if res, err := e.issue(e.Store(idempotency.Options{}), conformance.Op("0"), false); err != nil || res.Value.No != "no of 0" {
		e.Errorf("%v, %v", res, err)
	}
}

// eraseOwner erases an owner's personal data and keeps the fact that each operation is done.
// Other owners, operations and namespaces keep their data.
func eraseOwner[Tx any](e *env[Tx]) {
	e.ManyOwners()
	open := func(namespace string) *idempotency.Store[Tx] {
		s, err := idempotency.New(e.Ctx, e.DB, idempotency.Options{Namespace: namespace})
		if err != nil {
			e.Fatal(err)
		}
		return s
	}
	s, elsewhere := open("shop"), open("elsewhere")
	op := func(owner, name, key string) idempotency.Op {
		return idempotency.Op{Owner: owner, Name: name, Key: key, Request: key}
	}
	type one struct {
		s  *idempotency.Store[Tx]
		op idempotency.Op
	}
	ops := []one{
		{s, op("anna", "refund", "1")},
		{s, op("anna", "void", "2")},
		{s, op("bert", "refund", "3")},
		{elsewhere, op("anna", "refund", "4")},
		{s, op("ann", "refund", "5")},
		{s, op("Anna", "refund", "6")},
	}
	for _, o := range ops {
		if _, err := e.issue(o.s, o.op, false); err != nil {
			e.Fatal(err)
		}
	}
	_, _ = e.issue(s, op("anna", "refund", "no"), true)
	left := func() int { return e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE result IS NOT NULL`) }
	erase := func(x idempotency.Erasure, want int64, results int) {
		e.Helper()
		if n, err := s.EraseScope(e.Ctx, x); err != nil || n != want || left() != results {
			e.Errorf("%+v erased %d, %v, and left %d results, want %d and %d", x, n, err, left(), want, results)
		}
	}
	erase(idempotency.Erasure{Owner: "anna", Name: "void", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 1, 6)
	erase(idempotency.Erasure{Owner: "nobody", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0, 6)
	erase(idempotency.Erasure{Owner: "anna", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 2, 4)
	erase(idempotency.Erasure{Owner: "anna", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0, 4)
	e.tombstoned(s, op("anna", "refund", "1"), "no of 1", false)
	e.tombstoned(s, op("anna", "refund", "no"), "", true)
	other := op("anna", "refund", "1")
	other.Request = "another"
	if _, err := e.issue(s, other, false); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("got %v, want a mismatch: the fingerprint stays", err)
	}
	erase(idempotency.Erasure{Owner: "anna", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 3, 4)
	erase(idempotency.Erasure{Owner: "anna", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0, 4)
	e.tombstoned(s, op("anna", "refund", "1"), "", false)
	e.tombstoned(s, op("anna", "refund", "no"), "", true)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE namespace = 'shop' AND owner = 'anna' AND (length(op_key) > 0 OR fingerprint IS NOT NULL OR business_id IS NOT NULL)`); n != 0 {
		e.Errorf("%d records say what they were about", n)
	}
	for _, o := range ops {
		e.WantOnce(o.op.Key)
	}
	for _, o := range ops[2:] {
		if r, err := e.issue(o.s, o.op, false); err != nil || r.Value.Lines[0] != "personal" {
			e.Errorf("%+v: %v, %v", o.op, r, err)
		}
	}
	for _, x := range []idempotency.Erasure{
		{Actor: holdfast.Actor{By: "olga", Reason: "asked"}},
		{Owner: "a\x00", Actor: holdfast.Actor{By: "olga", Reason: "asked"}},
		{Owner: "anna", Name: "\xff", Actor: holdfast.Actor{By: "olga", Reason: "asked"}},
		{Owner: "anna", Actor: holdfast.Actor{Reason: "asked"}},
		{Owner: "anna", Actor: holdfast.Actor{By: "olga"}},
	} {
		if _, err := s.EraseScope(e.Ctx, x); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", x, err)
		}
	}
}

// eraseStagedOwner does the same for staged operations, with their steps and events.
func eraseStagedOwner[Tx any](e *env[Tx]) {
	e.ManyOwners()
	s, err := idempotency.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	runner, err := staged.New(s, staged.Workflow[string, string, Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[Tx], who string) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) {
				if who == "unlucky" {
					return "", errors.New("the line is dead")
				}
				return "iban of " + who, nil
			})
		},
	})
	if err != nil {
		e.Fatal(err)
	}
	op := func(owner, key string) idempotency.Op {
		return idempotency.Op{Owner: owner, Name: "refund", Key: key}
	}
	for _, o := range []idempotency.Op{op("anna", "1"), op("anna", "2"), op("bert", "3")} {
		if _, err := runner.Do(e.Ctx, o, o.Owner); err != nil {
			e.Fatal(err)
		}
	}
	if _, err := runner.Do(e.Ctx, op("anna", "4"), "unlucky"); err == nil {
		e.Fatal("it was to be parked")
	}
	ref := staged.Ref{Owner: "anna", Name: "refund", Key: "1"}
	if _, err := staged.HandleEvent(e.Ctx, s, staged.ProviderEvent{Ref: ref, ID: "n", Kind: "settled", Body: []byte("personal")}, nil); err != nil {
		e.Fatal(err)
	}
	erase := func(x idempotency.Erasure, want int64) {
		e.Helper()
		if n, err := s.EraseScope(e.Ctx, x); err != nil || n != want {
			e.Errorf("%+v erased %d, %v, want %d", x, n, err, want)
		}
	}
	erase(idempotency.Erasure{Owner: "anna", Name: "another", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0)
	erase(idempotency.Erasure{Owner: "anna", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 2)
	erase(idempotency.Erasure{Owner: "anna", Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0)
	if _, err := staged.HandleEvent(e.Ctx, s, staged.ProviderEvent{Ref: ref, ID: "late", Kind: "reversed", Body: []byte("personal")}, nil); err != nil {
		e.Fatal(err)
	}
	erase(idempotency.Erasure{Owner: "anna", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 2)
	erase(idempotency.Erasure{Owner: "anna", Keys: true, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}, 0)
	for query, want := range map[string]int{
		`SELECT COUNT(*) FROM holdfast_staged WHERE owner = 'anna' AND state IN (4, 5) AND request IS NULL AND result IS NULL AND length(op_key) = 0 AND fingerprint IS NULL`: 2,
		`SELECT COUNT(*) FROM holdfast_staged WHERE result IS NOT NULL`:        1,
		`SELECT COUNT(*) FROM holdfast_steps WHERE result IS NOT NULL`:         1,
		`SELECT COUNT(*) FROM holdfast_provider_events WHERE body IS NOT NULL`: 0,
		`SELECT COUNT(*) FROM holdfast_provider_events WHERE kind <> ''`:       0,
		`SELECT COUNT(*) FROM holdfast_provider_events WHERE owner = 'anna'`:   2,
		`SELECT COUNT(*) FROM holdfast_staged WHERE state = 6`:                 1,
	} {
		if n := e.Int(query); n != want {
			e.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	if _, err := runner.Do(e.Ctx, op("anna", "1"), "anna"); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("a duplicate is told %v", err)
	}
	if r, err := runner.Do(e.Ctx, op("bert", "3"), "bert"); err != nil || r.Value != "iban of bert" {
		e.Errorf("another owner's: %v, %v", r, err)
	}
}

// eraseManyPages erases more records than one page and one batch hold; half of them belong to
// another operation. Two erasers run at once, beside a claim in progress.
func eraseManyPages[Tx any](e *env[Tx]) {
	e.RecordsOf(func(int) string { return "" }, "mine", 700, e.Now()+3_600_000_000)
	e.RecordsOf(func(int) string { return "" }, "other", 700, e.Now()+3_600_000_000)
	s := e.Store(idempotency.Options{Namespace: "n", LockTimeout: 10 * time.Second})
	if !e.DB.Capabilities().RowLocks {
		s = e.Store(idempotency.Options{Namespace: "n", LockTimeout: 10 * time.Second, Attempts: 100})
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sum int64
	for range 2 {
		wg.Go(func() {
			n, err := s.EraseScope(e.Ctx, idempotency.Erasure{Name: "mine", Actor: holdfast.Actor{By: "olga", Reason: "asked"}})
			mu.Lock()
			defer mu.Unlock()
			sum += n
			if err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	tombs := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE operation = 'mine' AND state = 4 AND result IS NULL`)
	kept := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE operation = 'other' AND state = 2 AND result IS NOT NULL`)
	if sum != 700 || tombs != 700 || kept != 700 {
		e.Errorf("erased %d, %d tombstones, %d of the others kept", sum, tombs, kept)
	}
}

// twoVersionsTogether runs two versions of the program side by side. Requests of the second have
// one more field. A duplicate is recognised across the deployment; a different request is a
// mismatch wherever the two forms can be compared.
func twoVersionsTogether[Tx any](e *env[Tx]) {
	type v1 struct{ Order, Cents int }
	type v2 struct {
		Order, Cents int
		Currency     string
	}
	before := func(key string, cents int) idempotency.Op {
		return idempotency.Op{Name: "refund", Key: key, Request: v1{42, cents}}
	}
	after := func(key string, cents int) idempotency.Op {
		return idempotency.Op{
			Name: "refund", Key: key, Request: v2{42, cents, "EUR"}, RequestVersion: 1,
			Earlier: map[int]any{0: v1{42, cents}},
		}
	}
	bare := func(key string, cents int) idempotency.Op { // has only its own version
		op := after(key, cents)
		op.Earlier = nil
		return op
	}
	type program func(string, int) idempotency.Op
	for _, c := range []struct {
		name          string
		first, second program
		cents         int
		want          error
	}{
		{"old, then new", before, after, 100, nil},
		{"old, then another by the new", before, after, 200, idempotency.ErrMismatch},
		{"new, then old", after, before, 100, nil},
		{"new, then another by the old: not to be compared", after, before, 200, nil},
		{"new twice", after, after, 100, nil},
		{"new, then another by the new", after, after, 200, idempotency.ErrMismatch},
		{"old, then one that forgot it", before, bare, 200, nil},
	} {
		for _, one := range []bool{false, true} {
			key := fmt.Sprint(c.name, one)
			a := e.Store(idempotency.Options{})
			b := a
			if !one {
				b = e.Store(idempotency.Options{}) // another process
			}
			if r, err := e.Do(a, c.first(key, 100)); err != nil || r.Outcome != idempotency.Executed {
				e.Errorf("%s: %v, %v", key, r, err)
			}
			r, err := e.Do(b, c.second(key, c.cents))
			if !errors.Is(err, c.want) || err == nil && r.Outcome != idempotency.Replayed {
				e.Errorf("%s: %v, %v, want %v", key, r, err, c.want)
			}
			e.WantOnce(key)
		}
	}
	// Two calls in one process compare their requests too, while the first is in progress.
	s := e.Store(idempotency.Options{})
	done := make(chan error, 1)
	_, err := idempotency.Do(e.Ctx, s, before("flight", 100), func(ctx context.Context, tx Tx) (string, error) {
		go func() {
			_, err := e.Do(s, after("flight", 200))
			done <- err
		}()
		return "done", e.Effect(ctx, tx, "flight")
	})
	if err != nil {
		e.Error(err)
	}
	if err := <-done; !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("beside a call under way: %v", err)
	}
	for _, op := range []idempotency.Op{
		{Request: 1, RequestVersion: -1},
		{Request: 1, RequestVersion: 2047 + 1},
		{Request: 1, Earlier: map[int]any{0: 1}},
		{Request: 1, Earlier: map[int]any{-1: 1}},
		{NoFingerprint: true, Earlier: map[int]any{1: 1}},
		{Fingerprint: []byte("x"), Earlier: map[int]any{1: "text"}},
		{Request: 1, Earlier: map[int]any{1: func() {}}},
	} {
		op.Name, op.Key = "refund", "bad"
		if _, err := e.Do(s, op); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%+v: %v", op, err)
		}
	}
}

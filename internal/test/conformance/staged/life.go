package staged

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/reaper"
)

// stagedLife lets results and keys of staged operations expire. They count as expired before the reaper
// comes, which clears them with their steps and events; what has not ended stays.
func stagedLife[Tx any](e *env[Tx]) {
	const life = 50 * time.Millisecond
	f := &refund[Tx]{e: e, provider: newProvider()}
	keeps := e.staged(f.stages(), idempotency.Options{ResultTTL: life})
	do := func(s *staged.Runner[string, string, Tx], key string) error {
		e.Helper()
		_, err := s.Do(e.Ctx, stagedOp(key), key)
		return err
	}
	event := func(key string) {
		e.Helper()
		if _, err := staged.HandleEvent(e.Ctx, e.Store(idempotency.Options{}), staged.ProviderEvent{ID: "1", Ref: ref(key), Kind: "paid", Body: []byte("body")}, nil); err != nil {
			e.Error(err)
		}
	}
	if err := do(keeps, "a"); err != nil {
		e.Fatal(err)
	}
	event("a")
	e.Eventually("the result has expired", func() bool {
		found, err := keeps.Lookup(e.Ctx, stagedOp("a"))
		return err != nil || found.State == idempotency.StateSucceededExpired
	})
	if err := do(keeps, "a"); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("past its ResultTTL: %v", err)
	}
	f.call = nil
	parkedAt(e, "parked")
	e.started(keeps, "started")
	sweep := func(results, keys int64) {
		e.Helper()
		r := e.Reaper(reaper.Options{})
		report, err := r.Sweep(e.Ctx)
		if err != nil {
			e.Fatal(err)
		}
		for _, task := range report.Tasks {
			if want := map[string]int64{"staged_results": results, "staged_keys": keys}[task.Task]; task.Rows != want {
				e.Errorf("%+v, want %d", task, want)
			}
		}
	}
	rows := func(query string, want int) {
		e.Helper()
		if n := e.Int(query); n != want {
			e.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	sweep(1, 0)
	rows(`SELECT COUNT(*) FROM holdfast_staged WHERE state = 4 AND request IS NULL AND result IS NULL AND result_expires_at IS NULL`, 1)
	rows(`SELECT COUNT(*) FROM holdfast_steps p JOIN holdfast_staged s ON s.owner = p.owner AND s.key_hash = p.key_hash WHERE s.state = 4 AND p.result IS NULL`, 3)
	rows(`SELECT COUNT(*) FROM holdfast_provider_events WHERE body IS NULL AND kind = ''`, 1)
	sweep(0, 0)
	if err := do(keeps, "a"); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("cleared: %v", err)
	}
	f.provider.want(e, 1, 1)
	e.wantState("parked", idempotency.StateUnknown)
	e.wantState("started", idempotency.StateWaiting)

	// After the KeyTTL it runs again, whether it was cleared or not, by Do and by StartTx.
	loses := e.staged(f.stages(), idempotency.Options{ResultTTL: life, KeyTTL: life})
	absent := func(key string) {
		e.Helper()
		e.Eventually("the key has expired", func() bool {
			found, err := loses.Lookup(e.Ctx, stagedOp(key))
			return err != nil || found.State == idempotency.StateAbsent
		})
	}
	for range 2 {
		if err := do(loses, "b"); err != nil {
			e.Error(err)
		}
		event("b")
		absent("b")
	}
	if n := e.Effects("b"); n != 2 {
		e.Errorf("%d effects of two lives", n)
	}
	if st := e.started(loses, "b"); !st.New {
		e.Error("it was not begun again")
	}
	rows(`SELECT COUNT(*) FROM holdfast_provider_events WHERE body IS NOT NULL`, 0)
	if err := do(loses, "b"); err != nil {
		e.Error(err)
	}
	event("b")
	absent("b")
	before := e.Int(`SELECT COUNT(*) FROM holdfast_steps`)
	sweep(0, 1)
	rows(`SELECT COUNT(*) FROM holdfast_steps`, before-3)
	rows(`SELECT COUNT(*) FROM holdfast_provider_events`, 1)
	if _, err := e.find("b"); !errors.Is(err, staged.ErrNotFound) {
		e.Errorf("cleared: %v", err)
	}
	e.wantState("parked", idempotency.StateUnknown)
}

// stagedErased erases an owner's data: requests, results of steps, bodies of events and, with the keys, the
// names that providers have for the calls.
func stagedErased[Tx any](e *env[Tx]) {
	store := e.Store(idempotency.Options{})
	_, s := accepts(e, "a", time.Hour, staged.ExternalCall[string]{})
	event := settled("a")
	event.Body = []byte("body")
	if _, err := staged.HandleEvent(e.Ctx, store, event, nil); err != nil {
		e.Fatal(err)
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Fatal(err)
	}
	left := func(want int) {
		e.Helper()
		n := e.Int(`SELECT (SELECT COUNT(*) FROM holdfast_staged WHERE request IS NOT NULL OR result IS NOT NULL)
 + (SELECT COUNT(*) FROM holdfast_steps WHERE result IS NOT NULL) + (SELECT COUNT(*) FROM holdfast_provider_events WHERE body IS NOT NULL)`)
		if n != want {
			e.Errorf("%d rows have something to erase, want %d", n, want)
		}
	}
	left(5)
	for _, keys := range []bool{false, true} {
		if n, err := store.EraseScope(e.Ctx, idempotency.Erasure{Keys: keys, Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); err != nil || n != 1 {
			e.Errorf("%d, %v", n, err)
		}
		left(0)
		event.ID += " again"
		_, err := staged.HandleEvent(e.Ctx, store, staged.ProviderEvent{ID: event.ID, Provider: "bank", Reference: "re_a", Outcome: staged.StepReversed}, nil)
		if want := map[bool]error{true: staged.ErrNotFound}[keys]; !errors.Is(err, want) {
			e.Errorf("an event by the reference, keys erased %v: %v", keys, err)
		}
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("erased: %v", err)
	}
}

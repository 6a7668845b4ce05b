package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
	"github.com/holdfast-go/holdfast/reaper"
)

// Ceilings is the suite of the bounds on the new keys of an owner.
func Ceilings[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"CeilingOfNewKeys":    ceilingOfNewKeys[Tx],
		"CeilingOfRecords":    ceilingOfRecords[Tx],
		"CeilingInTx":         ceilingInTx[Tx],
		"CeilingOfFlood":      ceilingOfFlood[Tx],
		"CeilingOfStatements": ceilingOfStatements[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// tenants opens a store with owners.
func (e *env[Tx]) tenants(o idempotency.Options) *idempotency.Store[Tx] {
	e.Helper()
	s, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners), o)
	if err != nil {
		e.Fatal(err)
	}
	return s
}

func of(owner, key string) idempotency.Op {
	op := conformance.Op(key)
	op.Owner = owner
	return op
}

// ceilingOfNewKeys floods as one owner. It is refused, without effect, and another owner is not. What it
// has executed is replayed as before; keys of calls that stored nothing do not count.
func ceilingOfNewKeys[Tx any](e *env[Tx]) {
	s := e.tenants(idempotency.Options{MaxNew: 12})
	failed := errors.New("boom")
	for i := range 12 {
		_, err := idempotency.Do(e.Ctx, s, of("eve", fmt.Sprint("failed", i)), func(context.Context, Tx) (string, error) { return "", failed })
		if !errors.Is(err, failed) {
			e.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = idempotency.Do(e.Ctx, s, of("eve", fmt.Sprint("panicked", i)), func(context.Context, Tx) (string, error) { panic("boom") })
			e.Error("the panic is gone")
		}()
	}
	for i := range 12 { // half of them refusals, which are the cheapest to make
		_, err := e.issue(s, of("eve", fmt.Sprint(i)), i%2 == 1)
		if rej := (*idempotency.Rejection)(nil); err != nil && !errors.As(err, &rej) {
			e.Fatal(err)
		}
	}
	for i := range 5 {
		_, err := e.issue(s, of("eve", fmt.Sprint("more", i)), false)
		e.TooMany("a new key", err, 12, false)
		op := of("eve", fmt.Sprint("at once", i))
		op.Wait = holdfast.NoWait
		_, err = e.issue(s, op, false)
		e.TooMany("a new key without a wait", err, 12, false)
		if n := e.Effects(fmt.Sprint("more", i)); n != 0 {
			e.Errorf("a refused call has %d effects", n)
		}
	}
	if res, err := e.issue(s, of("eve", "0"), false); err != nil || res.Outcome != idempotency.Replayed {
		e.Errorf("a key that was executed: %v, %v", res, err)
	}
	if res, err := e.issue(s, of("anna", "0"), false); err != nil || res.Outcome != idempotency.Executed {
		e.Errorf("another owner: %v, %v", res, err)
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE owner = 'eve'`); n != 12 {
		e.Errorf("%d records of the one that floods", n)
	}
}

// ceilingOfRecords floods through two processes. They count the same records; what the reaper clears
// makes room.
func ceilingOfRecords[Tx any](e *env[Tx]) {
	o := idempotency.Options{MaxRecords: 10, MaxNew: holdfast.Unlimited}
	a, b := e.tenants(o), e.tenants(o)
	for i := range 10 {
		s := a
		if i%2 == 1 {
			s = b
		}
		if _, err := e.issue(s, of("eve", fmt.Sprint(i)), true); errors.Is(err, idempotency.ErrTooMany) {
			e.Fatalf("after %d records: %v", i, err)
		}
	}
	for _, s := range []*idempotency.Store[Tx]{a, b, e.tenants(o)} {
		for range 2 { // the second one is refused without a count
			_, err := e.issue(s, of("eve", "more"), false)
			e.TooMany("a new key", err, 10, true)
		}
		if res, err := e.issue(s, of("anna", "0"), false); err != nil {
			e.Errorf("another owner: %v, %v", res, err)
		}
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE owner = 'eve'`); n != 10 {
		e.Errorf("%d records of the one that floods", n)
	}
	e.Must(`UPDATE holdfast_records SET result_expires_at = 1, key_expires_at = 1 WHERE owner = 'eve'`)
	e.Sweep(e.Reaper(reaper.Options{}), 0, 10)
	if res, err := e.issue(e.tenants(o), of("eve", "more"), false); err != nil || res.Outcome != idempotency.Executed {
		e.Errorf("after the reaper: %v, %v", res, err)
	}
}

// ceilingInTx reaches both bounds with DoTx, which rolls the transaction back.
func ceilingInTx[Tx any](e *env[Tx]) {
	for _, held := range []bool{false, true} {
		s, owner := e.tenants(idempotency.Options{MaxNew: 3}), "new"
		if held {
			s, owner = e.tenants(idempotency.Options{MaxNew: holdfast.Unlimited, MaxRecords: 3}), "held"
		}
		for i := range 3 {
			tx := e.BeginTx(sql.LevelDefault)
			if _, err := e.DoTx(s, tx, of(owner, fmt.Sprint(owner, i))); err != nil {
				e.Fatal(err)
			}
			if err := e.End(e.Ctx, tx, true); err != nil {
				e.Fatal(err)
			}
		}
		_, err := e.DoTx(s, e.BeginTx(sql.LevelDefault), of(owner, owner+"more"))
		e.TooMany("DoTx", err, 3, held)
		tx := e.BeginTx(sql.LevelDefault)
		if res, err := e.DoTx(s, tx, of(owner, owner+"0")); err != nil || res.Outcome != idempotency.Replayed {
			e.Errorf("a key that was executed: %v, %v", res, err)
		}
		if err := e.End(e.Ctx, tx, true); err != nil {
			e.Error(err)
		}
		if n := e.Effects(owner + "more"); n != 0 {
			e.Errorf("a refused call has %d effects", n)
		}
	}
}

// ceilingOfFlood floods from many goroutines: the bound of new keys is exact in a process.
func ceilingOfFlood[Tx any](e *env[Tx]) {
	s := e.tenants(idempotency.Options{MaxNew: 20})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var refused int
	for i := range 8 {
		wg.Go(func() {
			for n := range 5 {
				_, err := e.issue(s, of("eve", fmt.Sprint(i, " ", n)), false)
				mu.Lock()
				switch {
				case errors.Is(err, idempotency.ErrTooMany):
					refused++
				case err != nil:
					e.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 20 || refused != 20 {
		e.Errorf("%d records and %d refusals, want 20 of each", n, refused)
	}
}

// ceilingOfStatements counts: a call sends the same statements with and without bounds, but for one
// count a hundredth of MaxRecords. A refused call sends its look, at most.
func ceilingOfStatements[Tx any](e *env[Tx]) {
	var mu sync.Mutex
	var seen []string
	told := new(tracetest.Recorder)
	watched := newEnv(e.T, e.Handle, e.Engine, holdfast.Options{Tracers: []holdfast.Tracer{told}, Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, s.Name)
	}}})
	took := func() []string {
		mu.Lock()
		defer mu.Unlock()
		names := seen
		seen = nil
		return names
	}
	call := func(s *idempotency.Store[Tx], key string) []string {
		took()
		if _, err := watched.issue(s, of("anna", key), false); err != nil && !errors.Is(err, idempotency.ErrTooMany) {
			e.Error(err)
		}
		return took()
	}
	plain := watched.tenants(idempotency.Options{MaxNew: holdfast.Unlimited})
	call(plain, "warm")
	want := call(plain, "plain")
	if got := call(watched.tenants(idempotency.Options{}), "default"); !slices.Equal(got, want) {
		e.Errorf("by default: %v, want %v", got, want)
	}
	bound := watched.tenants(idempotency.Options{MaxNew: 6, MaxRecords: 400})
	counts := 0
	for i := range 6 {
		got := call(bound, fmt.Sprint("bound", i))
		if n := slices.Index(got, "records.count"); n >= 0 {
			counts++
			got = slices.Delete(slices.Clone(got), n, n+1)
		}
		if !slices.Equal(got, want) {
			e.Errorf("with bounds: %v, want %v", got, want)
		}
	}
	if counts != 2 { // at the first key, and after four more
		e.Errorf("%d counts of the records for 6 keys", counts)
	}
	if got := call(bound, "more"); !slices.Equal(got, []string{"records.look"}) {
		e.Errorf("a refused call sent %v", got)
	}
	if got := told.Outcomes("idempotency.do"); !slices.Contains(got, "too_many") {
		e.Errorf("outcomes: %v", got)
	}
}

package staged

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
)

// bounded opens a store with owners, and a runner on it whose operations end at once.
func (e *env[Tx]) bounded(db *holdfast.DB[Tx], o idempotency.Options) (*idempotency.Store[Tx], *staged.Runner[string, string, Tx]) {
	e.Helper()
	store, err := idempotency.New(e.Ctx, access.WithOwners(db, core.ManyOwners), o)
	e.Check(err)
	s, err := staged.New(store, staged.Workflow[string, string, Tx]{Name: "refund", Run: func(context.Context, *staged.Run[Tx], string) (string, error) { return "done", nil }})
	e.Check(err)
	return store, s
}

func ofOwner(owner, key string) idempotency.Op { return idempotency.Op{Owner: owner, Key: key} }

// ask runs an operation, or begins it in a transaction.
func (e *env[Tx]) ask(s *staged.Runner[string, string, Tx], op idempotency.Op, starts bool) (isNew bool, err error) {
	e.Helper()
	if !starts {
		res, err := s.Do(e.Ctx, op, "r")
		return res.Outcome == idempotency.Executed, err
	}
	tx := e.BeginTx(sql.LevelDefault)
	st, err := s.StartTx(e.Ctx, tx, op, "r")
	if err != nil { // the transaction was rolled back
		return false, err
	}
	e.EndTx(tx, true)
	return st.New, nil
}

// stagedCeilings reaches both bounds of an owner with staged operations, which count with its records.
// What it has stored is answered as before, and other owners are not affected.
func stagedCeilings[Tx any](e *env[Tx]) {
	for _, held := range []bool{false, true} {
		for _, starts := range []bool{false, true} {
			o := idempotency.Options{MaxNew: 4}
			if held {
				o = idempotency.Options{MaxNew: holdfast.Unlimited, MaxRecords: 4}
			}
			store, s := e.bounded(e.DB, o)
			owner := fmt.Sprint("eve", held, starts)
			record := func(key string) error {
				_, err := idempotency.Do(e.Ctx, store, idempotency.Op{Owner: owner, Name: "record", Key: key, Request: "r"}, func(context.Context, Tx) (string, error) { return "", nil })
				return err
			}
			e.Check(record("first"))
			for i := range 3 {
				if isNew, err := e.ask(s, ofOwner(owner, fmt.Sprint(i)), starts); err != nil || !isNew {
					e.Fatal(isNew, err)
				}
			}
			for _, again := range []bool{false, true} {
				_, err := e.ask(s, ofOwner(owner, "more"), again)
				e.TooMany(fmt.Sprint("a new operation, started ", again), err, 4, held)
			}
			e.TooMany("a new record", record("more"), 4, held)
			e.Check(record("first"))
			if isNew, err := e.ask(s, ofOwner(owner, "0"), starts); err != nil || isNew {
				e.Errorf("a key that is stored: new %v, %v", isNew, err)
			}
			if isNew, err := e.ask(s, ofOwner(owner+"'s neighbour", "0"), starts); err != nil || !isNew {
				e.Errorf("another owner: new %v, %v", isNew, err)
			}
			if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE owner = $1`, owner); n != 3 {
				e.Errorf("%d operations of the one that floods", n)
			}
		}
	}
}

// stagedCeilingOfDuplicates has many calls ask for one key: it counts once.
func stagedCeilingOfDuplicates[Tx any](e *env[Tx]) {
	const calls = 8
	_, s := e.bounded(e.DB, idempotency.Options{MaxNew: calls})
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if _, err := s.Do(e.Ctx, ofOwner("anna", "one"), "r"); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range calls - 1 {
		if _, err := s.Do(e.Ctx, ofOwner("anna", fmt.Sprint(i)), "r"); err != nil {
			e.Error(err)
		}
	}
	_, err := s.Do(e.Ctx, ofOwner("anna", "more"), "r")
	e.TooMany("one more", err, calls, false)
}

// stagedCeilingOfStatements counts: an operation sends the same statements with and without the default
// bounds, one more when records are counted, and only its look when it is refused.
func stagedCeilingOfStatements[Tx any](e *env[Tx]) {
	var mu sync.Mutex
	var seen []string
	told := new(tracetest.Recorder)
	watched := &env[Tx]{*conformance.New(e.T, e.Handle, e.Engine, holdfast.Options{Tracers: []holdfast.Tracer{told}, Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, s.Name)
	}}})}
	sent := func(s *staged.Runner[string, string, Tx], key string, starts bool) (names []string) {
		mu.Lock()
		seen = nil
		mu.Unlock()
		if _, err := watched.ask(s, ofOwner("anna", key), starts); err != nil && !errors.Is(err, idempotency.ErrTooMany) {
			e.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
	for _, starts := range []bool{false, true} {
		key := func(name string) string { return fmt.Sprint(name, starts) }
		_, plain := watched.bounded(watched.DB, idempotency.Options{MaxNew: holdfast.Unlimited})
		sent(plain, key("warm"), starts)
		want := sent(plain, key("plain"), starts)
		_, byDefault := watched.bounded(watched.DB, idempotency.Options{})
		if got := sent(byDefault, key("default"), starts); !slices.Equal(got, want) {
			e.Errorf("by default: %v, want %v", got, want)
		}
		_, bound := watched.bounded(watched.DB, idempotency.Options{MaxNew: 1, MaxRecords: 400})
		got := sent(bound, key("bound"), starts)
		if n := slices.Index(got, "records.count"); n < 0 || !slices.Equal(slices.Delete(slices.Clone(got), n, n+1), want) {
			e.Errorf("with bounds: %v, want %v with a count", got, want)
		}
		if got := sent(bound, key("more"), starts); !starts && len(got) != 1 {
			e.Errorf("a refused call sent %v", got)
		}
	}
	for _, call := range []string{"staged.do", "staged.start"} {
		if got := told.Outcomes(call); !slices.Contains(got, "too_many") {
			e.Errorf("outcomes of %s: %v", call, got)
		}
	}
}

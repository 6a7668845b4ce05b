package staged

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// started begins an operation in a transaction of InTx, with an effect of the caller.
func (e *env[Tx]) started(s *staged.Runner[string, string, Tx], key string) (st *staged.Started[string]) {
	e.Helper()
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) (err error) {
		if st, err = s.StartTx(ctx, tx, stagedOp(key), key); err == nil && st.New {
			err = e.Effect(ctx, tx, key+" asked for")
		}
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
	return st
}

// complete runs a completer until the test ends. Its passes are so rare that it finds nothing by them
// after the first.
func (e *env[Tx]) completer(s *staged.Runner[string, string, Tx]) {
	ctx, cancel := context.WithCancel(e.Ctx)
	passed, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		defer close(ended)
		_ = s.RunCompleter(ctx, staged.RunOptions{Every: time.Hour, OnPass: func(staged.Completed, error) { once.Do(func() { close(passed) }) }})
	}()
	e.Cleanup(func() { cancel(); <-ended })
	<-passed
}

func (e *env[Tx]) wantFound(s *staged.Runner[string, string, Tx], key string, want idempotency.State) (found idempotency.Found[string]) {
	e.Helper()
	found, err := s.Lookup(e.Ctx, stagedOp(key))
	if err != nil || found.State != want {
		e.Errorf("%s: %+v, %v, want %v", key, found, err, want)
	}
	e.wantListed(operators.Filter{Key: key}, want)
	return found
}

// wantListed checks that operators see the operation of f.Key in the state that Lookup tells, and in that list only.
func (e *env[Tx]) wantListed(f operators.Filter, want idempotency.State) {
	e.Helper()
	ops := operators.New(e.Store(idempotency.Options{}))
	for s := idempotency.StateInProgress; s <= idempotency.StateRejectedExpired; s++ {
		f.States = []idempotency.State{s}
		list, err := core.First(99, ops.List(e.Ctx, f))
		list = slices.DeleteFunc(list, func(op staged.Operation) bool { return op.Key != f.Key })
		if err != nil || (len(list) > 0) != (s == want) || len(list) > 0 && list[0].State != s {
			e.Errorf("%q among %v: %+v, %v, want %v", f.Key, s, list, err, want)
		}
	}
}

// stagedStart begins operations in each kind of transaction. Nothing runs before the commit, and
// nothing is left of a transaction that was rolled back. Afterwards any completer continues.
func stagedStart[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	store := e.Store(idempotency.Options{})
	begin := func(ctx context.Context, tx Tx, key string) error {
		st, err := s.StartTx(ctx, tx, stagedOp(key), key)
		if err != nil {
			return err
		}
		if !st.New || st.Ref != ref(key) {
			e.Errorf("%s: %+v", key, st)
		}
		e.wantFound(s, key, idempotency.StateAbsent) // before the commit
		return e.Effect(ctx, tx, key+" asked for")
	}
	in := map[string]func(key string, fail error) error{
		"InTx": func(key string, fail error) error {
			return e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return errors.Join(begin(ctx, tx, key), fail) })
		},
		"Do": func(key string, fail error) error {
			_, err := idempotency.Do(e.Ctx, store, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
				return "", errors.Join(begin(ctx, tx, key), fail)
			})
			return err
		},
		"DoTx": func(key string, fail error) error {
			tx := e.BeginTx(sql.LevelDefault)
			_, err := idempotency.DoTx(e.Ctx, store, tx, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
				return "", errors.Join(begin(ctx, tx, key), fail)
			})
			if err == nil {
				e.EndTx(tx, true)
			}
			return err
		},
		"own": func(key string, fail error) error {
			tx := e.BeginTx(sql.LevelDefault)
			err := errors.Join(begin(e.Ctx, tx, key), fail)
			e.EndTx(tx, err == nil)
			return err
		},
	}
	boom := errors.New("boom")
	for name, f := range in {
		if err := f(name+" fails", boom); !errors.Is(err, boom) {
			e.Errorf("in %s: %v", name, err)
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged`) + e.Effects(name+" fails asked for"); n != 0 {
			e.Errorf("in %s: rolled back, %d rows", name, n)
		}
	}
	for name, f := range in {
		if err := f(name, nil); err != nil {
			e.Errorf("in %s: %v", name, err)
		}
		e.WantOnce(name + " asked for")
		if op := e.wantState(name, idempotency.StateWaiting); op.Started != 0 || op.Due > 0 {
			e.Errorf("in %s: %+v", name, op)
		}
		e.wantFound(s, name, idempotency.StateWaiting)
	}
	f.provider.want(e, 0, 0)
	one := staged.RunOptions{Workers: 1} // f counts its runs
	if done, err := s.Complete(e.Ctx, one); err != nil || done.Succeeded != len(in) {
		e.Errorf("%+v, %v", done, err)
	}
	f.provider.want(e, len(in), len(in))
	for name := range in {
		e.wantRefunded(name)
	}
}

// stagedStartTwice begins one operation again: in the same transaction, later, by Do, with another
// request, and while the first transaction is open.
func stagedStartTwice[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
		for _, isNew := range []bool{true, false} {
			if st, err := s.StartTx(ctx, tx, stagedOp("a"), "a"); err != nil || st.New != isNew {
				return fmt.Errorf("%+v: %w", st, err)
			}
		}
		_, err := s.StartTx(ctx, tx, stagedOp("a"), "another")
		if !errors.Is(err, idempotency.ErrMismatch) {
			return fmt.Errorf("another request: %w", err)
		}
		return e.Effect(ctx, tx, "a asked for") // the transaction goes on
	})
	if err != nil {
		e.Error(err)
	}
	e.WantOnce("a asked for")
	if st := e.started(s, "a"); st.New {
		e.Error("the second transaction began it again")
	}
	f.provider.want(e, 0, 0)
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("Do continues it: %v, %v", r, err)
	}
	e.wantRefunded("a")
	st := e.started(s, "a")
	if r, err := st.Wait(e.Ctx); st.New || err != nil || r.Outcome != idempotency.Replayed || r.Value != "paid with "+s.ProviderKey(ref("a"), "pay") {
		e.Errorf("begun once it has ended: %v, %v, %v", st.New, r, err)
	}
	if _, err := s.Do(e.Ctx, stagedOp("a"), "another"); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("another request: %v", err)
	}
	f.provider.want(e, 1, 1)

	// One more begins it while the first transaction is open: it waits, and fails within its bound.
	first := e.BeginTx(sql.LevelDefault)
	if _, err := s.StartTx(e.Ctx, first, stagedOp("b"), "b"); err != nil {
		e.Fatal(err)
	}
	if !e.exclusive() {
		second := e.BeginTx(sql.LevelDefault)
		op := stagedOp("b")
		op.Wait = holdfast.NoWait
		if _, err := s.StartTx(e.Ctx, second, op, "b"); !errors.Is(err, idempotency.ErrInProgress) {
			e.Errorf("while the first is open: %v", err)
		}
		e.WantRolledBack(second)
	}
	e.EndTx(first, false)
	if st := e.started(s, "b"); !st.New {
		e.Error("the first was rolled back, and the second found it")
	}
}

// exclusive reports whether a second writer cannot begin its transaction.
func (e *env[Tx]) exclusive() bool { return e.Engine.Like() == "sqlite" }

// stagedStartSnapshot begins an operation in a transaction whose snapshot is older than the commit that
// began it. It finds it, or has to run again; it never begins it twice.
func stagedStartSnapshot[Tx any](e *env[Tx]) {
	if e.exclusive() {
		return // no second writer while a transaction is open
	}
	_, s := e.stagedRefunds(0)
	for _, level := range e.Levels() {
		key := level.String()
		tx := e.BeginTx(level)
		if _, _, err := e.ReadInt(tx, `SELECT COUNT(*) FROM holdfast_registers`); err != nil {
			e.Fatal(err)
		}
		e.started(s, key)
		st, err := s.StartTx(e.Ctx, tx, stagedOp(key), key)
		switch {
		case err == nil && !st.New:
			e.EndTx(tx, true)
		case errors.Is(err, holdfast.ErrRetry):
			e.WantRolledBack(tx)
		default:
			e.Errorf("%s: %+v, %v", key, st, err)
			e.EndTx(tx, false)
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_staged WHERE op_key = ` + e.Blob([]byte(key))); n != 1 {
			e.Errorf("%s: %d operations", key, n)
		}
	}
}

// stagedStartWaits waits for operations that a completer of this process continues at once: its
// passes are an hour apart.
func stagedStartWaits[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	e.completer(s)
	if _, err := e.started(s, "a").Wait(e.Ctx); err != nil {
		e.Error(err)
	}
	e.wantRefunded("a")
	// A bound that ends first.
	inside, free := make(chan struct{}), make(chan struct{})
	f.call = func(_ context.Context, key string) (string, error) {
		close(inside)
		<-free
		return f.provider.pay(key), nil
	}
	st := e.started(s, "b")
	ctx, cancel := context.WithTimeout(e.Ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := st.Wait(ctx); !errors.Is(err, idempotency.ErrInProgress) || !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("a bound: %v", err)
	}
	<-inside
	e.wantFound(s, "b", idempotency.StateInProgress)
	close(free)
	if _, err := st.Wait(e.Ctx); err != nil {
		e.Error(err)
	}
	e.wantRefunded("b")
	// A rejection, and an operation that is parked.
	f.call = func(context.Context, string) (string, error) {
		return "", idempotency.Reject("closed", "the account is closed")
	}
	var rejection *idempotency.Rejection
	if _, err := e.started(s, "c").Wait(e.Ctx); !errors.As(err, &rejection) || rejection.Code != "closed" {
		e.Errorf("rejected: %v", err)
	}
	f.call = func(context.Context, string) (string, error) { return "", errTimeout }
	var parked *staged.ParkedError
	if _, err := e.started(s, "d").Wait(e.Ctx); !errors.As(err, &parked) || parked.Step != "pay" {
		e.Errorf("parked: %v", err)
	}
	// In a function within a transaction it would wait for its own commit. A transaction that is
	// rolled back leaves nothing to wait for.
	boom := errors.New("boom")
	err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) (err error) {
		if st, err = s.StartTx(ctx, tx, stagedOp("e"), "e"); err != nil {
			return err
		}
		if _, err := st.Wait(ctx); !errors.Is(err, staged.ErrInTx) {
			e.Errorf("within the transaction: %v", err)
		}
		return boom
	})
	if !errors.Is(err, boom) {
		e.Error(err)
	}
	if _, err := st.Wait(e.Ctx); !errors.Is(err, staged.ErrNotFound) {
		e.Errorf("rolled back: %v", err)
	}
	// Another process finds it: this runner has no completer.
	f.call = nil
	elsewhere := e.staged(f.stages(), idempotency.Options{})
	st = e.started(elsewhere, "f")
	go st.Committed()
	if done, err := s.Complete(e.Ctx); err != nil || done.Succeeded != 1 {
		e.Errorf("%+v, %v", done, err)
	}
	if _, err := st.Wait(e.Ctx); err != nil {
		e.Error(err)
	}
}

// stagedLookup asks what became of an operation in each of its states. It executes nothing.
func stagedLookup[Tx any](e *env[Tx]) {
	f, s := e.stagedRefunds(0)
	e.wantFound(s, "a", idempotency.StateAbsent)
	e.started(s, "a")
	e.wantFound(s, "a", idempotency.StateWaiting)
	f.provider.want(e, 0, 0)
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil {
		e.Fatal(err)
	}
	if found := e.wantFound(s, "a", idempotency.StateSucceeded); found.Value != "paid with "+s.ProviderKey(ref("a"), "pay") || found.Program == "" {
		e.Errorf("%+v", found)
	}
	op := stagedOp("a")
	op.Request = "another"
	if _, err := s.Lookup(e.Ctx, op); !errors.Is(err, idempotency.ErrMismatch) {
		e.Errorf("another request: %v", err)
	}
	f.call = func(context.Context, string) (string, error) { return "", idempotency.Reject("closed", "") }
	_, _ = s.Do(e.Ctx, stagedOp("b"), "b")
	if found := e.wantFound(s, "b", idempotency.StateRejected); found.Rejection == nil || found.Rejection.Code != "closed" {
		e.Errorf("%+v", found)
	}
	f.call = func(context.Context, string) (string, error) { return "", errTimeout }
	_, _ = s.Do(e.Ctx, stagedOp("c"), "c")
	if found := e.wantFound(s, "c", idempotency.StateUnknown); found.Reason == "" {
		e.Errorf("%+v", found)
	}
	f.call = nil
	boom := errors.New("boom")
	f.before = func(int) error { return boom }
	_, _ = s.Do(e.Ctx, stagedOp("d"), "d")
	if found := e.wantFound(s, "d", idempotency.StateWaiting); found.Reason != "boom" {
		e.Errorf("%+v", found)
	}
	op.Wait, op.Key, op.Request = 20*time.Millisecond, "d", nil
	if found, err := s.Lookup(e.Ctx, op); err != nil || found.State != idempotency.StateWaiting {
		e.Errorf("with a wait: %+v, %v", found, err)
	}
	f.provider.want(e, 1, 1)

	store := e.Store(idempotency.Options{})
	look := func(op idempotency.Op, want idempotency.State) idempotency.Found[string] {
		e.Helper()
		found, err := idempotency.Lookup[string](e.Ctx, store, op)
		if err != nil || found.State != want {
			e.Errorf("%+v, %v, want %v", found, err, want)
		}
		e.wantListed(operators.Filter{Key: op.Key, Records: true}, want)
		return found
	}
	look(conformance.Op("x"), idempotency.StateAbsent)
	if _, err := e.Do(store, conformance.Op("x")); err != nil {
		e.Fatal(err)
	}
	if found := look(conformance.Op("x"), idempotency.StateSucceeded); found.Value == "" {
		e.Errorf("%+v", found)
	}
	if _, err := idempotency.Do(e.Ctx, store, conformance.Op("y"), func(context.Context, Tx) (string, error) { return "", idempotency.Reject("no", "") }); err == nil {
		e.Error("not rejected")
	}
	if found := look(conformance.Op("y"), idempotency.StateRejected); found.Rejection.Code != "no" {
		e.Errorf("%+v", found)
	}
	for _, table := range []string{"records", "staged"} { // the reaper has not come by yet
		e.Must(`UPDATE holdfast_` + table + ` SET result_expires_at = created_at WHERE state IN (2, 3)`)
	}
	look(conformance.Op("x"), idempotency.StateSucceededExpired)
	look(conformance.Op("y"), idempotency.StateRejectedExpired)
	e.wantFound(s, "a", idempotency.StateSucceededExpired)
	e.wantFound(s, "b", idempotency.StateRejectedExpired)
	if _, err := store.EraseScope(e.Ctx, idempotency.Erasure{Actor: holdfast.Actor{By: "olga", Reason: "asked"}}); err != nil {
		e.Fatal(err)
	}
	look(conformance.Op("x"), idempotency.StateSucceededExpired)
	look(conformance.Op("y"), idempotency.StateRejectedExpired)
	e.wantFound(s, "a", idempotency.StateSucceededExpired)
	e.wantFound(s, "b", idempotency.StateRejectedExpired)
}

package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/sqllock"
)

// afterRestore checks that tokens of the lost time are refused everywhere, and that nothing runs
// again blindly.
func afterRestore[Tx any](e *env[Tx]) {
	locks, err := sqllock.New(e.Ctx, e.DB)
	if err != nil {
		e.Fatal(err)
	}
	defer locks.Close(e.Ctx)
	lease, err := locks.TryAcquire(e.Ctx, "ledger")
	if err != nil {
		e.Fatal(err)
	}
	f, s := e.stagedRefunds(0)
	// An operation advanced further in the lost time. The restore leaves the row as it was
	// before the call, although the provider has been paid.
	boom := errors.New("boom")
	f.before = func(n int) error { return map[int]error{1: boom}[n] }
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, boom) {
		e.Error(err)
	}
	f.provider.pay(s.ProviderKey(ref("a"), "pay"))
	if _, err := s.Do(e.Ctx, stagedOp("done"), "done"); err != nil {
		e.Error(err)
	}
	f.provider.want(e, 2, 2)
	most := e.Int(`SELECT MAX(token) FROM holdfast_locks`)

	for name, bad := range map[string]struct {
		who holdfast.Actor
		o   operators.RestoreOptions
	}{
		"nobody": {}, "margin": {who(), operators.RestoreOptions{Margin: -1}}, "long margin": {who(), operators.RestoreOptions{Margin: 31 * 24 * time.Hour}},
	} {
		if _, err := operators.AfterRestore(e.Ctx, e.DB, bad.who, bad.o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
	e.wantState("a", idempotency.StateWaiting)
	start := time.Now()
	got, err := operators.AfterRestore(e.Ctx, e.DB, who(), operators.RestoreOptions{Margin: time.Hour})
	if err != nil || got.Parked != 1 || got.Locks != 1 || int(got.Floor) <= most || got.Floor < start.Add(55*time.Minute).UnixMicro() {
		e.Errorf("%+v, %v", got, err)
	}
	if floor := e.Int(`SELECT token FROM holdfast_floor`); floor != int(got.Floor) {
		e.Errorf("the floor is %d, want %d", floor, got.Floor)
	}

	// The previous holder is fenced out. The next holder gets a higher token, and so does a new
	// key.
	err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error { return locks.Guard(ctx, tx, lease.Term()) }, holdfast.TxOptions{Attempts: 1})
	if !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("the guard of a lost term: %v", err)
	}
	for _, key := range []string{"ledger", "new"} {
		l, err := locks.TryAcquire(e.Ctx, key)
		if err != nil {
			e.Fatal(err)
		}
		if l.Term().Token() <= got.Floor {
			e.Errorf("%s: token %d, the floor is %d", key, l.Term().Token(), got.Floor)
		}
	}

	// No operation continues automatically.
	var parked *staged.ParkedError
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.As(err, &parked) {
		e.Errorf("after the restore: %v", err)
	}
	if done, err := s.Complete(e.Ctx); err != nil || done.Found != 0 {
		e.Errorf("%+v, %v", done, err)
	}
	f.provider.want(e, 2, 2)
	e.wantState("done", idempotency.StateSucceeded)
	op := e.wantState("a", idempotency.StateUnknown)
	if len(op.Interventions) != 1 || op.Interventions[0].Action != "after-restore" || op.Token < got.Floor {
		e.Errorf("%+v", op)
	}
	// After a resume, the operation asks the provider first, though the table shows no begun
	// step.
	asked := 0
	f.outside.Reconcile = func(_ context.Context, key string) (string, error) {
		if asked++; !f.provider.has(key) {
			return "", staged.NotDone(errors.New("no payment"))
		}
		return "found", nil
	}
	if err := operators.New(e.Store(idempotency.Options{})).Resolve(e.Ctx, ref("a"), operators.Resolution{Resume: true}, who()); err != nil {
		e.Error(err)
	}
	if r, err := s.Do(e.Ctx, stagedOp("a"), "a"); err != nil || r.Value != "found" || asked != 1 {
		e.Errorf("%v, %v, asked %d times", r, err, asked)
	}
	f.provider.want(e, 2, 2)
	e.wantRefunded("a")

	again, err := operators.AfterRestore(e.Ctx, e.DB, who())
	if err != nil || again.Floor <= got.Floor || again.Parked != 0 {
		e.Errorf("again: %+v, %v", again, err)
	}
	if _, err := s.Do(e.Ctx, stagedOp("new"), "new"); err != nil {
		e.Error(err)
	}
	if op := e.show("new"); op.Token <= again.Floor {
		e.Errorf("a new operation has token %d, the floor is %d", op.Token, again.Floor)
	}
}

// afterRestoreRollback checks that after-restore is one transaction. Without a floor it changes
// nothing.
func afterRestoreRollback[Tx any](e *env[Tx]) {
	boom := errors.New("boom")
	f, s := e.stagedRefunds(0)
	f.before = func(int) error { return boom }
	if _, err := s.Do(e.Ctx, stagedOp("a"), "a"); !errors.Is(err, boom) {
		e.Error(err)
	}
	e.Must(`DELETE FROM holdfast_floor`)
	if _, err := operators.AfterRestore(e.Ctx, e.DB, who()); err == nil {
		e.Error("without a floor there was no error")
	}
	if op := e.wantState("a", idempotency.StateWaiting); len(op.Interventions) != 0 {
		e.Errorf("%+v", op)
	}
	if _, err := s.Do(e.Ctx, stagedOp("b"), "b"); err == nil {
		e.Error("an operation was claimed without a floor")
	}
}

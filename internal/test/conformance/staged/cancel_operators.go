package staged

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// operatorsCancel cancels, as a person, what was never used, what waits, and what is too late, with an audit of each.
func operatorsCancel[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "an operator works alone")
	store := e.Store(idempotency.Options{})
	ops := operators.New(store)
	f, s := e.stagedRefunds(0)
	by := holdfast.Actor{By: "ana@ops", Reason: "cancelled by the customer"}
	cancel := func(key string, want idempotency.Outcome) {
		e.Helper()
		if o, err := ops.Cancel(e.Ctx, ref(key), by); o != want || err != nil {
			e.Errorf("cancel %s: %v, %v, want %v", key, o, err, want)
		}
	}
	late := func(key string, want idempotency.State) {
		e.Helper()
		audited := e.Int(`SELECT COUNT(*) FROM holdfast_audit`)
		_, err := ops.Cancel(e.Ctx, ref(key), by)
		var late *idempotency.TooLateError
		if !errors.As(err, &late) || late.State != want {
			e.Errorf("cancel %s: %v, want too late, %v", key, err, want)
		}
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_audit`); n != audited {
			e.Errorf("cancel %s: %d entries in the audit for nothing", key, n-audited)
		}
	}
	cancel("never", idempotency.Executed)
	audited := e.Int(`SELECT COUNT(*) FROM holdfast_audit`)
	cancel("never", idempotency.Replayed)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_audit`); audited != 1 || n != 1 {
		e.Errorf("%d entries in the audit for a cancel, and %d more for the same again", audited, n-audited)
	}
	e.isCancelled(s, "never")
	forgotten := e.staged(f.stages(), idempotency.Options{KeyTTL: time.Hour})
	e.cancel(forgotten, "forgotten", idempotency.Executed)
	e.Must(`UPDATE holdfast_staged SET result_expires_at = 1, key_expires_at = 1 WHERE op_key = $1`, []byte("forgotten"))
	cancel("forgotten", idempotency.Executed)
	e.isCancelled(forgotten, "forgotten")
	var rej *idempotency.Rejection
	_, err := idempotency.Do(e.Ctx, store, conformance.Op("never"), func(context.Context, Tx) (string, error) { return "done", nil })
	if !errors.As(err, &rej) || rej.Code != idempotency.CodeVoided {
		e.Errorf("a record of Do: %v", err)
	}
	e.started(s, "waits")
	cancel("waits", idempotency.Executed)
	e.isCancelled(s, "waits")
	if op := e.show("waits"); len(op.Interventions) != 1 || op.Interventions[0].Action != "cancel" || op.Interventions[0].Reason != by.Reason {
		e.Errorf("%+v", op.Interventions)
	}
	f.call = func(context.Context, string) (string, error) { return "", staged.NotDone(errors.New("refused")) }
	_, _ = s.Do(e.Ctx, stagedOp("booked"), "booked")
	late("booked", idempotency.StateWaiting)
	f.call = nil
	if _, err := s.Do(e.Ctx, stagedOp("done"), "done"); err != nil {
		e.Error(err)
	}
	late("done", idempotency.StateSucceeded)
	_, err = idempotency.Do(e.Ctx, store, conformance.Op("record"), func(context.Context, Tx) (string, error) { return "done", nil })
	e.Check(err)
	late("record", idempotency.StateSucceeded)
	if _, err := store.Void(e.Ctx, conformance.Op("voided"), "cancelled by the customer"); err != nil {
		e.Error(err)
	}
	cancel("voided", idempotency.Executed) // as a staged operation
	cancel("voided", idempotency.Replayed)
	for name, by := range map[string]holdfast.Actor{"nobody": {Reason: "why"}, "no reason": {By: "ana@ops"}} {
		if _, err := ops.Cancel(e.Ctx, ref("a"), by); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%s: %v", name, err)
		}
	}
}

// resolvedBesideStaged resolves a record beside a staged operation with the same name and key, which has ended.
func resolvedBesideStaged[Tx any](e *env[Tx], ops *operators.Operators[Tx]) {
	e.Helper()
	_, runner := e.stagedRefunds(0)
	if _, err := runner.Do(e.Ctx, stagedOp("free"), "free"); err != nil {
		e.Error(err)
	}
	e.Must(`UPDATE holdfast_records SET state = 1, result = NULL, finished_at = NULL WHERE op_key = $1`, []byte("free"))
	if op, err := ops.Show(e.Ctx, ref("free")); err != nil || op.Staged || op.State != idempotency.StateUnknown {
		e.Errorf("beside a staged operation: %+v, %v", op, err)
	}
	p, err := ops.Propose(e.Ctx, ref("free"), operators.Resolution{Free: true}, who())
	if err != nil {
		e.Fatal(err)
	}
	if err := ops.Confirm(e.Ctx, p.ID, "ben@ops"); err != nil {
		e.Errorf("beside a staged operation: %v", err)
	}
	for kind, want := range map[string]int{"record": 2, "staged": 0} {
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_audit WHERE kind = '` + kind + `' AND action LIKE 'free the key%' AND subject = (SELECT key_hash FROM holdfast_staged)`); n != want {
			e.Errorf("%d entries in the audit about a %s, with that of the record alone", n, kind)
		}
	}
	if op, err := ops.Show(e.Ctx, ref("free")); err != nil || !op.Staged {
		e.Errorf("the staged operation: %+v, %v", op, err)
	}
	if err := ops.Resolve(e.Ctx, ref("free"), operators.Resolution{Free: true}, who()); !errors.Is(err, staged.ErrState) {
		e.Errorf("the staged operation: %v", err)
	}
}

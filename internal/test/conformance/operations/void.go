package operations

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// Voids is the suite of Void: a cancel that may come before, beside or after its original.
func Voids[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"VoidedBefore": voidedBefore[Tx],
		"VoidTooLate":  voidTooLate[Tx],
		"VoidUnread":   voidUnread[Tx],
		"VoidWaits":    voidWaits[Tx],
		"VoidLasts":    voidLasts[Tx],
		"VoidBeside":   voidBeside[Tx],
		"VoidInput":    voidInput[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

// void voids an operation, and fails unless the outcome is want.
func (e *env[Tx]) void(s *idempotency.Store[Tx], op idempotency.Op, want idempotency.Outcome) {
	e.Helper()
	if o, err := s.Void(e.Ctx, op, "the order was cancelled"); o != want || err != nil {
		e.Errorf("void %s: %v, %v, want %v", op.Key, o, err, want)
	}
}

// isVoided fails unless err is the rejection of a voided operation.
func (e *env[Tx]) isVoided(what string, err error) {
	e.Helper()
	var rej *idempotency.Rejection
	if !errors.As(err, &rej) || rej.Code != idempotency.CodeVoided || rej.Message != "the order was cancelled" {
		e.Errorf("%s: %v, want that it is voided", what, err)
	}
}

// voidedBefore voids a key that was never used. Its original comes later, with any request, and is refused.
func voidedBefore[Tx any](e *env[Tx]) {
	s, other := e.Store(idempotency.Options{}), e.Store(idempotency.Options{})
	e.void(s, conformance.Op("a"), idempotency.Executed)
	e.void(s, conformance.Op("a"), idempotency.Replayed)
	e.void(other, conformance.Op("a"), idempotency.Replayed)
	for _, s := range []*idempotency.Store[Tx]{s, other} {
		for _, request := range []string{"a", "another"} {
			op := conformance.Op("a")
			op.Request = request
			_, err := e.Do(s, op)
			e.isVoided("Do", err)
		}
		tx, err := e.Begin(e.Ctx, 0)
		e.Check(err)
		_, err = e.DoTx(s, tx, conformance.Op("a"))
		e.isVoided("DoTx", err)
		e.Check(e.End(e.Ctx, tx, true))
		found, err := idempotency.Lookup[string](e.Ctx, s, conformance.Op("a"))
		if err != nil || found.State != idempotency.StateRejected || found.Rejection.Code != idempotency.CodeVoided {
			e.Errorf("Lookup: %+v, %v", found, err)
		}
	}
	if n := e.Effects("a"); n != 0 {
		e.Errorf("%d effects of a voided operation", n)
	}
	if _, err := e.Do(s, conformance.Op("b")); err != nil {
		e.Error(err)
	}
	e.WantOnce("b")
}

// tooLate fails unless err says that a Void came too late for an operation in a state.
func (e *env[Tx]) tooLate(what string, err error, want idempotency.State) *idempotency.TooLateError {
	e.Helper()
	var late *idempotency.TooLateError
	if !errors.Is(err, idempotency.ErrTooLate) || !errors.As(err, &late) || late.State != want {
		e.Fatalf("%s: %v, want too late, %v", what, err, want)
	}
	return late
}

// voidTooLate voids what was done, or refused, before: nothing changes.
func voidTooLate[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	want, err := e.issue(s, conformance.Op("done"), false)
	e.Check(err)
	for range 2 {
		_, err := s.Void(e.Ctx, conformance.Op("done"), "late")
		if late := e.tooLate("done", err, idempotency.StateSucceeded); late.BusinessID != want.Value.No || late.Rejection != nil {
			e.Errorf("done: %+v", late)
		}
	}
	if got, err := e.issue(s, conformance.Op("done"), false); err != nil || got.Value.No != want.Value.No {
		e.Errorf("after a void that was too late: %v, %v", got, err)
	}
	if _, err := e.issue(s, conformance.Op("refused"), true); err == nil {
		e.Error("it was not refused")
	}
	_, err = s.Void(e.Ctx, conformance.Op("refused"), "late")
	if late := e.tooLate("refused", err, idempotency.StateRejected); late.Rejection == nil || late.Rejection.Code == idempotency.CodeVoided {
		e.Errorf("refused: %+v", late)
	}
	e.Must(`UPDATE holdfast_records SET result_expires_at = 1`)
	_, err = s.Void(e.Ctx, conformance.Op("done"), "late")
	e.tooLate("expired", err, idempotency.StateSucceededExpired)
	_, err = s.Void(e.Ctx, conformance.Op("refused"), "late")
	e.tooLate("expired", err, idempotency.StateRejectedExpired)
}

// voidUnread voids with a program that cannot read the rejection that is there, which may be a void or another.
func voidUnread[Tx any](e *env[Tx]) {
	e.void(e.Store(idempotency.Options{Codec: mask{"mask:1", 0x5a}}), conformance.Op("a"), idempotency.Executed)
	_, err := e.Store(idempotency.Options{}).Void(e.Ctx, conformance.Op("a"), "again")
	var unread *idempotency.ResultError
	if !errors.As(err, &unread) || !unread.Rejected || errors.Is(err, idempotency.ErrTooLate) {
		e.Errorf("without the codec: %v", err)
	}
}

// voidWaits voids an operation that is in progress: it waits, and is too late. If the operation fails, its
// key is voided.
func voidWaits[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	release := e.HoldKey("a")
	now := conformance.Op("a")
	now.Wait = holdfast.NoWait
	if _, err := s.Void(e.Ctx, now, "now"); !errors.Is(err, idempotency.ErrInProgress) {
		e.Errorf("without a wait: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Void(e.Ctx, conformance.Op("a"), "later")
		ended <- err
	}()
	release()
	e.tooLate("after a wait", <-ended, idempotency.StateSucceeded)
	e.WantOnce("a")

	started, fail := make(chan struct{}), make(chan struct{})
	go func() {
		_, err := idempotency.Do(e.Ctx, s, conformance.Op("b"), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, "b"); err != nil {
				return "", err
			}
			close(started)
			<-fail
			return "", errors.New("it fails")
		})
		ended <- err
	}()
	<-started
	voided := make(chan struct{})
	go func() {
		defer close(voided)
		e.void(s, conformance.Op("b"), idempotency.Executed)
	}()
	close(fail)
	if err := <-ended; err == nil {
		e.Error("the function failed, and Do did not")
	}
	<-voided
	if n := e.Effects("b"); n != 0 {
		e.Errorf("%d effects of a voided operation", n)
	}
}

// voidLasts keeps a void as long as a key, and not as a rejection.
func voidLasts[Tx any](e *env[Tx]) {
	e.void(e.Store(idempotency.Options{RejectionTTL: time.Hour}), conformance.Op("ever"), idempotency.Executed)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE key_expires_at IS NULL AND result_expires_at IS NULL AND state = 3`); n != 1 {
		e.Errorf("%d voids are kept for ever", n)
	}
	s := e.Store(idempotency.Options{RejectionTTL: time.Minute, KeyTTL: time.Hour})
	e.void(s, conformance.Op("hour"), idempotency.Executed)
	if life := time.Duration(e.Int(`SELECT key_expires_at - finished_at FROM holdfast_records WHERE key_expires_at IS NOT NULL`)) * time.Microsecond; life < time.Hour || life > 2*time.Hour {
		e.Errorf("a void is kept for %v", life)
	}
	e.Must(`UPDATE holdfast_records SET result_expires_at = 1, key_expires_at = 1 WHERE key_expires_at IS NOT NULL`)
	e.void(s, conformance.Op("hour"), idempotency.Executed)
	_, err := e.Do(s, conformance.Op("hour"))
	e.isVoided("Do", err)

	// A result's end ends no void, and its erasure leaves the key closed.
	s = e.Store(idempotency.Options{ResultTTL: 50 * time.Millisecond, KeyTTL: time.Hour})
	e.void(s, conformance.Op("result"), idempotency.Executed)
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_records WHERE op_key = $1 AND result_expires_at - finished_at > 1800000000`, []byte("result")); n != 1 {
		e.Error("the reason of a void ends before its key")
	}
	_, err = s.EraseScope(e.Ctx, idempotency.Erasure{Owner: conformance.Op("").Owner, Actor: holdfast.Actor{By: "test", Reason: "a test"}})
	e.Check(err)
	if _, err := s.Void(e.Ctx, conformance.Op("result"), "again"); !errors.Is(err, idempotency.ErrTooLate) {
		e.Errorf("Void of an erased void: %v", err)
	}
	if _, err := e.Do(s, conformance.Op("result")); !errors.Is(err, idempotency.ErrExpired) {
		e.Errorf("Do of an erased void: %v", err)
	}
}

// voidBeside sends originals and their voids at the same time, from two stores. Of each pair, one wins.
func voidBeside[Tx any](e *env[Tx]) {
	stores := []*idempotency.Store[Tx]{e.Store(idempotency.Options{}), e.Store(idempotency.Options{})}
	const keys = 24
	var wg sync.WaitGroup
	var mu sync.Mutex
	did, voided := map[string]int{}, map[string]int{}
	for i := range keys {
		key := fmt.Sprint("key ", i)
		for n, s := range stores {
			wg.Go(func() {
				_, err := e.Do(s, conformance.Op(key))
				var rej *idempotency.Rejection
				switch {
				case err == nil:
					mu.Lock()
					did[key]++
					mu.Unlock()
				case errors.As(err, &rej) && rej.Code == idempotency.CodeVoided:
				default:
					e.Errorf("Do %s: %v", key, err)
				}
			})
			wg.Go(func() {
				_, err := stores[1-n].Void(e.Ctx, conformance.Op(key), "beside")
				switch {
				case err == nil:
					mu.Lock()
					voided[key]++
					mu.Unlock()
				case !errors.Is(err, idempotency.ErrTooLate):
					e.Errorf("Void %s: %v", key, err)
				}
			})
		}
	}
	wg.Wait()
	for i := range keys {
		key := fmt.Sprint("key ", i)
		effects := e.Effects(key)
		if effects > 1 || did[key] != 2*effects || voided[key] != 2*(1-effects) {
			e.Errorf("%s: %d effects, done to %d callers of 2, voided to %d of 2", key, effects, did[key], voided[key])
		}
	}
	e.Logf("%d of %d were voided", len(voided), keys)
}

func voidInput[Tx any](e *env[Tx]) {
	s := e.Store(idempotency.Options{})
	for name, reason := range map[string]string{"none": "", "long": strings.Repeat("x", 501), "NUL": "a\x00b", "bytes": "\xff"} {
		if _, err := s.Void(e.Ctx, conformance.Op("a"), reason); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("a reason: %s: %v", name, err)
		}
	}
	if _, err := s.Void(e.Ctx, idempotency.Op{Name: "refund"}, "no key"); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("no key: %v", err)
	}
	_, err := idempotency.Do(e.Ctx, s, conformance.Op("a"), func(ctx context.Context, _ Tx) (string, error) {
		_, err := s.Void(ctx, conformance.Op("a"), "itself")
		if !errors.Is(err, idempotency.ErrNested) {
			e.Errorf("in its own function: %v", err)
		}
		return "done", nil
	})
	e.Check(err)
	_, err = idempotency.Do(e.Ctx, s, conformance.Op("outer"), func(ctx context.Context, _ Tx) (string, error) {
		_, err := s.Void(ctx, conformance.Op("a"), "late")
		return "done", err
	})
	var inner *idempotency.InnerError
	if !errors.As(err, &inner) || errors.Is(err, idempotency.ErrTooLate) {
		e.Errorf("of another operation: %v, want an inner outcome", err)
	}
}

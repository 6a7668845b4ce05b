package idempotency_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/tracetest"
)

// TestSimilarAfterALostCommit loses the answer to a COMMIT. The same key resolves it, and another key is
// refused if, and only if, it was committed.
func TestSimilarAfterALostCommit(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
		store, err := idempotency.New(t.Context(), kit.DB)
		if err != nil {
			t.Fatal(err)
		}
		click := func(key string) (idempotency.Result[string], error) {
			op := idempotency.Op{Name: "refund", Key: key, Request: 100}
			op.Similar = &idempotency.Similar{By: []string{"order", "100"}, Window: time.Hour}
			return idempotency.Do(t.Context(), store, op, func(context.Context, *sql.Tx) (string, error) { return key, nil })
		}
		kit.LoseCommit(committed)
		if _, err := click("a"); !errors.Is(err, idempotency.ErrUnknown) {
			t.Fatal(err)
		}
		r, err := click("b")
		if committed != errors.Is(err, idempotency.ErrSimilar) || !committed && (err != nil || r.Outcome != idempotency.Executed) {
			t.Errorf("committed %v: another key: %v, %v", committed, r, err)
		}
		r, err = click("a")
		if committed && (err != nil || r.Outcome != idempotency.Replayed) || !committed && !errors.Is(err, idempotency.ErrSimilar) {
			t.Errorf("committed %v: the same key: %v, %v", committed, r, err)
		}
	}
}

// TestSimilarTold checks that tracers get each operation that was executed though a similar one had been, and
// of no other: not of a replay, nor of a rejection.
func TestSimilarTold(t *testing.T) {
	t.Parallel()
	told := new(tracetest.Recorder)
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true, Tracers: []holdfast.Tracer{told}})
	store, err := idempotency.New(t.Context(), kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, joined := range []bool{false, true} {
		click := func(key string, said error) {
			t.Helper()
			op := idempotency.Op{Name: "refund", Key: key, Request: 100}
			op.Similar = &idempotency.Similar{By: []string{"order", "100"}, Window: time.Hour, Confirm: idempotency.ConfirmAny}
			fn := func(context.Context, *sql.Tx) (string, error) { return key, said }
			do := func() error {
				_, err := idempotency.Do(t.Context(), store, op, fn)
				return err
			}
			if joined {
				do = func() error {
					return kit.DB.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
						_, err := idempotency.DoTx(ctx, store, tx, op, fn)
						return err
					})
				}
			}
			var rej *idempotency.Rejection
			if err := do(); errors.As(err, &rej) != (said != nil) || said == nil && err != nil {
				t.Errorf("joined %v, %s: %v", joined, key, err)
			}
			if n := len(told.Events("similar.again")); n != want {
				t.Errorf("joined %v, %s: told %d times, not %d", joined, key, n, want)
			}
		}
		if !joined {
			click("first", nil)
		}
		want++
		key := map[bool]string{false: "alone", true: "joined"}[joined]
		click(key, nil)
		click(key, nil)
		click(key+" rejected", idempotency.Reject("no", "never"))
	}
}

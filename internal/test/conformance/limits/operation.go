package limits

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/limits"
)

// takenWithinAnOperation takes an amount in the transaction of Do. An amount that does not fit is
// rejected for good, and nothing that the function wrote is committed.
func takenWithinAnOperation[Tx any](e *env[Tx]) {
	l, store := e.open(), e.Store(idempotency.Options{})
	e.set(l, "a", 100)
	refund := func(key string) (idempotency.Result[string], error) {
		return idempotency.Do(e.Ctx, store, conformance.Op(key), func(ctx context.Context, tx Tx) (string, error) {
			if err := e.Effect(ctx, tx, key); err != nil {
				return "", err
			}
			_, err := l.TakeTx(ctx, tx, ask("a", key, 60))
			if errors.Is(err, limits.ErrExceeded) {
				return "", idempotency.Reject("over_refund", err.Error())
			}
			return "refunded", err
		})
	}
	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
		if got, err := refund("first"); err != nil || got.Outcome != want || got.Value != "refunded" {
			e.Errorf("%+v, %v", got, err)
		}
		var rejection *idempotency.Rejection
		if got, err := refund("second"); !errors.As(err, &rejection) || rejection.Code != "over_refund" || got.Outcome != want {
			e.Errorf("%+v, %v", got, err)
		}
	}
	e.WantOnce("first")
	if n := e.Effects("second"); n != 0 {
		e.Errorf("%d effects of a refund that was rejected", n)
	}
	e.wantStatus(l, "a", 100, 0, 60)
}

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

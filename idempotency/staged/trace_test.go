package staged_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// retries notes the attempts of each transaction, as the metric of retries does.
type retries struct{ transactions, again int }

func (r *retries) Start(ctx context.Context, c holdfast.Call) (context.Context, func(holdfast.CallResult)) {
	if c.Name != "transaction" {
		return ctx, nil
	}
	r.transactions++
	return ctx, func(res holdfast.CallResult) { r.again += res.Attempts - 1 }
}

func (*retries) Statement(context.Context, holdfast.Statement) {}

func (*retries) Event(context.Context, holdfast.Event) {}

// TestTransactionsAreCalls checks that tracers see the transactions of a staged operation, and how often each ran.
func TestTransactionsAreCalls(t *testing.T) {
	seen := &retries{}
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true, Tracers: []holdfast.Tracer{seen}})
	store, err := idempotency.New(t.Context(), kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	again := true
	r, err := staged.New(store, staged.Workflow[string, string, *sql.Tx]{
		Name: "refund",
		Run: func(ctx context.Context, run *staged.Run[*sql.Tx], _ string) (string, error) {
			return staged.Local(ctx, run, "book", func(context.Context, *sql.Tx) (string, error) {
				if again {
					again = false
					return "", fmt.Errorf("%w: for once", holdfast.ErrRetry)
				}
				return "booked", nil
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Do(t.Context(), idempotency.Op{Key: "42", NoFingerprint: true}, ""); err != nil || got.Value != "booked" {
		t.Fatal(got, err)
	}
	if seen.transactions != 3 || seen.again != 1 { // the claim, the step, the result
		t.Errorf("%d transactions, %d of them again", seen.transactions, seen.again)
	}
}

package operators_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
)

// parked opens a store with an operation whose call got no answer.
func parked(t *exampletb.TB) (*holdfasttest.Kit[*sql.Tx], *idempotency.Store[*sql.Tx], *staged.Runner[int, string, *sql.Tx]) {
	ctx := context.Background()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		panic(err)
	}
	refunds, err := staged.New(store, staged.Workflow[int, string, *sql.Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) {
				return "", errors.New("no answer")
			})
		},
	})
	if err != nil {
		panic(err)
	}
	_, err = refunds.Do(ctx, idempotency.Op{Key: "42/1"}, 1250)
	fmt.Println("unknown:", errors.Is(err, idempotency.ErrUnknown))
	return kit, store, refunds
}

// An operator asks the bank and records the outcome of the call.
func ExampleOperators_Resolve() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	_, store, refunds := parked(t)

	ops := operators.New(store)
	for op, err := range ops.List(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Println(op.Name, op.Key, op.State, op.Step)
		err = ops.Resolve(ctx, op.Ref, operators.Resolution{Step: staged.StepDone, StepResult: "bank reference 7"},
			holdfast.Actor{By: "ana", Reason: "found in the bank's portal"})
		if err != nil {
			panic(err)
		}
	}
	res, err := refunds.Do(ctx, idempotency.Op{Key: "42/1"}, 1250)
	fmt.Println(res.Value, err)
	// Output:
	// unknown: true
	// refund 42/1 unknown pay
	// bank reference 7 <nil>
}

// After a restore, every pending operation waits for an operator, and every token granted from
// now on is greater than those granted in the time that was lost.
func ExampleAfterRestore() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit, _, _ := parked(t)

	done, err := operators.AfterRestore(ctx, kit.DB, holdfast.Actor{By: "ana", Reason: "the disk was lost"})
	fmt.Println(done.Floor > 0, done.Parked, err)
	// Output:
	// unknown: true
	// true 0 <nil>
}

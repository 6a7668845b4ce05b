package inbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
)

// The broker delivers a message twice. It is processed once and acknowledged both times.
func ExampleInbox_Process() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit := holdfasttest.SQLite(t)
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		panic(err)
	}
	ledger, err := inbox.New(store, "ledger")
	if err != nil {
		panic(err)
	}
	for range 2 {
		outcome, err := ledger.Process(ctx, inbox.Message{Owner: "shop-7", ID: "msg-1", Body: []byte("1250 cents")}, func(context.Context, *sql.Tx) error {
			fmt.Println("booking")
			return nil
		})
		fmt.Println(outcome, inbox.DispositionOf(err))
	}
	// Output:
	// booking
	// executed acknowledge
	// replayed acknowledge
}

package outbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
)

// A refund and the message about it commit together, though the user clicks twice. The relay publishes
// the message, and a consumer that gets it twice books it once.
func Example() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit := holdfasttest.SQLite(t)
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		panic(err)
	}
	box, err := outbox.New(ctx, kit.DB, "refunds")
	if err != nil {
		panic(err)
	}
	for range 2 {
		op := idempotency.Op{Owner: "shop-7", Name: "refund", Key: "42", Request: 1250}
		_, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
			return "done", box.Write(ctx, tx, outbox.Message{Owner: "shop-7", Key: "order-42", Topic: "refunds.made", Body: []byte("1250 cents")})
		})
		if err != nil {
			panic(err)
		}
	}

	ledger, err := inbox.New(store, "ledger")
	if err != nil {
		panic(err)
	}
	relay, err := outbox.NewRelay(box, func(ctx context.Context, d outbox.Delivery) error {
		fmt.Println("published on", d.Topic)
		for range 2 { // the broker delivers it twice
			_, err := ledger.Process(ctx, inbox.Message{Owner: d.Owner, ID: d.ID, Body: d.Body}, func(context.Context, *sql.Tx) error {
				fmt.Printf("booked %s\n", d.Body)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	n, err := relay.Pass(ctx) // a program calls relay.Run
	fmt.Println(n, err)
	// Output:
	// published on refunds.made
	// booked 1250 cents
	// 1 <nil>
}

package cron_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/cron"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
)

// Three replicas come to the same tick. One of them closes the day. A program calls cron.Run, which
// calls Once at each tick.
func ExampleOnce() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		panic(err)
	}
	job := cron.Job{Name: "close-day", Schedule: cron.Every(100*365*24*time.Hour, 0)} // one tick for this example
	for range 3 {
		outcome, _, err := cron.Once(ctx, store, job, func(_ context.Context, _ *sql.Tx, tick time.Time) error {
			fmt.Println("closing the day of", tick.Format(time.DateOnly))
			return nil
		})
		fmt.Println(outcome, err)
	}
	// Output:
	// closing the day of 1970-01-01
	// executed <nil>
	// replayed <nil>
	// replayed <nil>
}

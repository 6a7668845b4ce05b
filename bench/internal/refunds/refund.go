// Package refunds makes one refund as a transaction, in bare statements and under Holdfast,
// each behind the same interface.
package refunds

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
	"github.com/holdfast-go/holdfast/internal/refund"
)

// Orders is the number of orders to refund.
const Orders = refund.Orders

// Do makes one refund of an order under a new key, or replays it if the key was used before.
type Do func(ctx context.Context, order int64, key string) error

// Form is a way to make a refund.
type Form struct {
	Name, Kind string
	// Statements and Against are as in locks.Competitor.
	Statements float64
	Against    string
	// Open opens the form; observe is nil while time is measured.
	Open func(ctx context.Context, e *sqlengine.Engine, observe holdfast.Observer) (do Do, closes func() error, err error)
}

var lastKey atomic.Int64

// NewKey returns a key that no other call gets.
func NewKey(client int) string {
	return "refund/" + strconv.Itoa(client) + "/" + strconv.FormatInt(lastKey.Add(1), 10)
}

// textsOf returns the statements on tables of the run's own.
func textsOf(engine string) refund.Texts {
	return refund.TextsOf(engine, func(table string) string { return table })
}

// Tables creates the tables of the service, with their orders.
func Tables(ctx context.Context, e *sqlengine.Engine) error {
	t := textsOf(e.Name)
	return e.Exec(ctx, slices.Concat(t.Tables, []string{t.Fill}, accounts)...)
}

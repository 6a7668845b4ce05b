package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// request is one movement of money: of an order, of a kind.
type request struct {
	Order string `json:"order"`
	Kind  string `json:"kind"`
}

// kinds are the movements, in the order in which a client asks for them.
var kinds = []string{"charge", "capture", "refund"}

// receipt is the result of a movement.
type receipt struct {
	Reference string `json:"reference"`
}

// settlesWithin is the deadline of a payment that the provider has accepted. A real one is days.
const settlesWithin = 3 * time.Second

// payments is the workflow of a movement: the provider moves the money once for each key, then the
// service's row says so. Every step is committed before the next; a process may die anywhere.
func payments[Tx any](store *idempotency.Store[Tx], db *database[Tx], bank *bankClient) (*staged.Runner[request, receipt, Tx], error) {
	return staged.New(store, staged.Workflow[request, receipt, Tx]{
		Name: "payment", Lease: 2 * time.Second, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second, MaxAttempts: 100,
		Run: func(ctx context.Context, r *staged.Run[Tx], p request) (receipt, error) {
			paid, err := staged.Call(ctx, r, staged.ExternalCall[receipt]{
				Step: "pay", Provider: "bank", Timeout: callTimeout,
				Reconcile: func(ctx context.Context, key string) (receipt, error) { return bank.find(ctx, key) },
			}, func(ctx context.Context, key string) (receipt, error) { return bank.pay(ctx, p, key) })
			state := "done"
			var declined *idempotency.Rejection
			if errors.As(err, &declined) {
				state = "declined"
			} else if err != nil {
				return receipt{}, err
			}
			if _, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx Tx) (bool, error) {
				return true, db.one(ctx, tx, `UPDATE payments SET state = ?, reference = ? WHERE order_no = ? AND kind = ?`, state, paid.Reference, p.Order, p.Kind)
			}); err != nil {
				return receipt{}, err
			}
			return paid, err
		},
	})
}

// start books a movement as asked for, and begins it, in the transaction of the request.
func (s *shop[Tx]) start(ctx context.Context, tx Tx, p request) (*staged.Started[receipt], error) {
	op := idempotency.Op{Owner: merchant, Key: idempotency.KeyOf(p.Order, p.Kind)}
	started, err := s.payments.StartTx(ctx, tx, op, p)
	if err != nil || !started.New {
		return started, err
	}
	return started, s.db.one(ctx, tx, `INSERT INTO payments (order_no, kind, state, reference, reversed) VALUES (?, ?, 'asked', '', 0)`, p.Order, p.Kind)
}

// payUnprotected is what a program without Holdfast does: it calls, tries again after an error, and
// writes down what it got. It is the control of the storm.
func (s *shop[Tx]) payUnprotected(ctx context.Context, p request) error {
	for range 5 {
		calling, stop := context.WithTimeout(ctx, time.Second)
		a, err := s.bank.move(calling, p, rand.Text())
		stop()
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		state := map[string]string{"declined": "declined"}[a.State]
		return s.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
			if _, err := s.db.exec(ctx, tx, `DELETE FROM payments WHERE order_no = ? AND kind = ?`, p.Order, p.Kind); err != nil {
				return err
			}
			return s.db.one(ctx, tx, `INSERT INTO payments (order_no, kind, state, reference, reversed) VALUES (?, ?, ?, ?, 0)`,
				p.Order, p.Kind, cmp.Or(state, "done"), a.Reference)
		})
	}
	return errors.New("the bank gave no answer")
}

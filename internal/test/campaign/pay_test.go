//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

// The bookings of a staged payment.
const (
	asked   = "asked"   // by the transaction that started it
	booked  = "booked"  // before the bank pays
	closed  = "closed"  // after the bank has paid
	undone  = "undone"  // the booking, by the cancel
	unasked = "unasked" // the request, by the cancel
)

// openPay opens the workflow of payments: booked here, paid at the bank, closed here. Its leases
// are short, so that others take over from a client that is killed or stopped.
func (c *client[Tx]) openPay(context.Context) (err error) {
	c.pays, err = staged.New(c.store, staged.Workflow[string, string, Tx]{
		Name: "pay", Lease: 500 * time.Millisecond, Backoff: 10 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, MaxAttempts: 10_000,
		Run: c.paySteps, Undo: c.payUndo,
	})
	return err
}

func (c *client[Tx]) paySteps(ctx context.Context, r *staged.Run[Tx], key string) (string, error) {
	local := func(kind string) error {
		_, err := staged.Local(ctx, r, kind, func(ctx context.Context, tx Tx) (bool, error) {
			if rand.IntN(25) == 0 {
				return false, errors.New("it fails on purpose")
			}
			return true, c.booking(ctx, tx, key, kind)
		})
		return err
	}
	if err := local(booked); err != nil {
		return "", err
	}
	paid, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}, func(ctx context.Context, providerKey string) (string, error) {
		if c.Control == freshKey {
			providerKey = fmt.Sprint(providerKey, "/", rand.Uint64())
		}
		return askBank(ctx, c.Bank+"/pay", "Idempotency-Key", providerKey, key)
	})
	if err != nil {
		return "", err
	}
	return paid, local(closed)
}

// payUndo takes back what a payment that is cancelled has written.
func (c *client[Tx]) payUndo(ctx context.Context, tx Tx, key string, op staged.Operation) error {
	for _, step := range op.Steps {
		if step.Name == booked {
			if err := c.booking(ctx, tx, key, undone); err != nil {
				return err
			}
		}
	}
	return c.some(ctx, tx, `INSERT INTO campaign_bookings (name, kind, epoch) SELECT name, '`+unasked+`', epoch FROM campaign_bookings WHERE name = $1 AND kind = '`+asked+`'`, []byte(key))
}

func (c *client[Tx]) booking(ctx context.Context, tx Tx, key, kind string) error {
	return c.exec(ctx, tx, `INSERT INTO campaign_bookings (name, kind, epoch) VALUES ($1, $2, $3)`, []byte(key), kind, epochOf(key))
}

// runPay is the completer: it continues the payments whose client was killed or gave up.
func (c *client[Tx]) runPay(ctx context.Context) {
	_ = c.pays.RunCompleter(ctx, staged.RunOptions{
		Every: 300 * time.Millisecond, Workers: 4, Logger: slog.New(slog.DiscardHandler),
		OnPass: func(done staged.Completed, _ error) { c.count(complete, done.Succeeded+done.Rejected) },
	})
}

// finishPay continues all payments until none is pending.
func (c *client[Tx]) finishPay(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := c.pays.Complete(ctx); err != nil {
			return err
		}
		pending, err := c.number(ctx, `SELECT COUNT(*) FROM holdfast_staged WHERE state = 1`)
		if err != nil || pending == 0 {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil // the audit names them
}

// pay requests the payment of a key, and waits for its end.
func (c *client[Tx]) pay(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	r, err := c.pays.Do(ctx, c.payOp(t), t.key)
	c.tellPayment(t, r.Value, err)
	return err
}

// start begins the payment in a transaction with a booking of its own, and leaves the rest to the
// completers.
func (c *client[Tx]) start(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	var begun *staged.Started[string]
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		if begun, err = c.pays.StartTx(ctx, tx, c.payOp(t), t.key); err != nil || !begun.New {
			return err
		}
		if err := c.booking(ctx, tx, t.key, asked); err != nil {
			return err
		}
		time.Sleep(t.think)
		if t.fails {
			return errors.New("it fails on purpose")
		}
		return nil
	})
	value := ""
	if err == nil {
		var r idempotency.Result[string]
		r, err = begun.Wait(ctx)
		value = r.Value
	}
	c.tellPayment(t, value, err)
	return err
}

// cancelPay cancels the payment of a key, which may not have begun.
func (c *client[Tx]) cancelPay(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	if c.Control == cancelByLook {
		return c.cancelIfAbsent(ctx, t)
	}
	_, err := c.pays.Cancel(ctx, idempotency.Op{Key: t.key}, "a campaign")
	return c.tellCancel(t, err)
}

// cancelIfAbsent looks whether there is a payment, and calls it cancelled if there is none.
func (c *client[Tx]) cancelIfAbsent(ctx context.Context, t *task) error {
	found, err := c.pays.Lookup(ctx, idempotency.Op{Key: t.key})
	if err == nil && found.State != idempotency.StateAbsent {
		err = idempotency.ErrTooLate
	}
	return c.tellCancel(t, err)
}

func (c *client[Tx]) payOp(t *task) idempotency.Op {
	return idempotency.Op{Key: t.key, Wait: map[bool]time.Duration{true: holdfast.NoWait}[t.try]}
}

// tellPayment records what a caller was told about a payment.
func (c *client[Tx]) tellPayment(t *task, value string, err error) {
	a := answer{Job: t.job, Key: t.key, ID: t.id, Outcome: executed, Value: value}
	var no *idempotency.Rejection
	switch {
	case err == nil:
	case errors.As(err, &no) && no.Code == idempotency.CodeVoided:
		a.Outcome = voided
	case errors.As(err, &no):
		a.Outcome = rejected
	default:
		a.Outcome, a.Err = unknown, err.Error() // it goes on, or may
	}
	t.b.told(a)
}

// tellCancel records what a caller was told about a cancel. "Too late" is no error.
func (c *client[Tx]) tellCancel(t *task, err error) error {
	a := answer{Job: t.job, Key: t.key, ID: t.id, Outcome: voided}
	switch {
	case err == nil:
	case errors.Is(err, idempotency.ErrTooLate):
		a.Outcome, err = late, nil
	default:
		a.Outcome, a.Err = unknown, err.Error()
	}
	t.b.told(a)
	return err
}

//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/optimistic"
)

// exec writes exactly one row.
func (c *client[Tx]) exec(ctx context.Context, tx Tx, query string, args ...any) error {
	n, err := c.execute(ctx, tx, query, args...)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows: %s", n, query)
	}
	return err
}

// some writes any number of rows.
func (c *client[Tx]) some(ctx context.Context, tx Tx, query string, args ...any) error {
	_, err := c.execute(ctx, tx, query, args...)
	return err
}

func (c *client[Tx]) execute(ctx context.Context, tx Tx, query string, args ...any) (int64, error) {
	q, err := access.Of(c.db).Join(tx)
	if err != nil {
		return 0, err
	}
	r, err := core.Compile("", query, c.db.Engine() != holdfast.PostgreSQL).Exec(ctx, q, args...)
	return r.Affected, err
}

// enter is the transaction of a refund. It reads and writes the order's balance, and adds a
// ledger entry and the token.
func (c *client[Tx]) enter(ctx context.Context, tx Tx, t *task, id string, token int64) error {
	q, err := access.Of(c.db).Join(tx)
	if err != nil {
		return err
	}
	name, amount, balance := []byte(t.key), int64(1+t.plan.key%100), int64(0)
	_, err = core.Compile("", `SELECT balance FROM campaign_orders WHERE name = $1`, c.db.Engine() != holdfast.PostgreSQL).QueryRow(ctx, q, []any{&balance}, name)
	if err != nil {
		return err
	}
	time.Sleep(t.think)
	if t.fails {
		return errors.New("it fails on purpose")
	}
	if err := c.exec(ctx, tx, `INSERT INTO campaign_ledger (name, amount, id, epoch) VALUES ($1, $2, $3, $4)`, name, amount, id, t.b.epoch); err != nil {
		return err
	}
	if err := c.exec(ctx, tx, `UPDATE campaign_orders SET balance = $2, seq = seq + 1 WHERE name = $1`, name, balance+amount); err != nil {
		return err
	}
	return c.exec(ctx, tx, `INSERT INTO campaign_commits (name, seq, token, epoch) SELECT name, seq, $2, $3 FROM campaign_orders WHERE name = $1`, name, token, t.b.epoch)
}

// refund requests the refund of a key, concurrently with other workers.
func (c *client[Tx]) refund(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	if c.Control == claimAfterWork {
		return c.refundThenClaim(ctx, t)
	}
	r, err := idempotency.Do(ctx, c.store, idempotency.Op{Name: "refund", Key: t.key, Request: t.key, Wait: map[bool]time.Duration{true: holdfast.NoWait}[t.try]}, func(ctx context.Context, tx Tx) (string, error) {
		return t.id, c.effect(ctx, tx, t, t.id)
	})
	c.tell(t, r.Outcome, r.Value, err)
	return err
}

// effect writes the effect of a refund or payout: there must be exactly one per key.
func (c *client[Tx]) effect(ctx context.Context, tx Tx, t *task, id string) error {
	return t.effect(id, func(query string, args ...any) error { return c.exec(ctx, tx, query, args...) })
}

func (t *task) effect(id string, exec func(query string, args ...any) error) error {
	if err := exec(`INSERT INTO campaign_effects (name, id, epoch) VALUES ($1, $2, $3)`, []byte(t.key), id, t.b.epoch); err != nil {
		return err
	}
	time.Sleep(t.think)
	if t.fails {
		return errors.New("it fails on purpose")
	}
	account := []byte(keyOf(t.b.epoch, "account", t.plan.key%2))
	if err := exec(`INSERT INTO campaign_ledger (name, amount, id, epoch) VALUES ($1, $2, $3, $4)`, account, 1, id, t.b.epoch); err != nil {
		return err
	}
	return exec(`UPDATE campaign_orders SET balance = balance + $1, seq = seq + 1 WHERE name = $2`, 1, account)
}

// payout is a refund whose record is the business row.
func (c *client[Tx]) payout(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	row := payoutRow{No: t.key, Amount: 100, Who: t.id, Epoch: int64(t.b.epoch)}
	r, err := c.payouts.Do(ctx, row, func(ctx context.Context, tx Tx) error { return c.effect(ctx, tx, t, t.id) })
	c.tell(t, r.Outcome, r.Value.Who, err)
	return err
}

// tell records the result of an operation.
func (c *client[Tx]) tell(t *task, o idempotency.Outcome, by string, err error) {
	a := answer{Job: t.job, Key: t.key, ID: t.id, Value: by}
	switch {
	case err == nil && o == idempotency.Executed:
		a.Outcome = executed
	case err == nil && o == idempotency.Replayed:
		a.Outcome = replayed
	case errors.Is(err, holdfast.ErrUnknown):
		a.Outcome, a.Value = unknown, ""
	default:
		a.Outcome, a.Value = refused, ""
	}
	if err != nil {
		a.Err = err.Error()
	}
	t.b.told(a)
}

// register reads a register, then swaps or deletes what it has read. All values are different,
// so a value identifies the operation that wrote it.
func (c *client[Tx]) register(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	seen := t.c.Read(t.key)
	from, err := c.registers.Get(ctx, t.key)
	if err != nil && !errors.Is(err, optimistic.ErrNotFound) {
		return err
	}
	seen.Got(string(from.Value))
	if t.job == read {
		return nil
	}
	time.Sleep(t.think)
	is := string(from.Value)
	switch {
	case from.Value == nil:
		op := t.c.Swap(t.key, "", t.id)
		_, err = c.registers.Create(ctx, t.key, []byte(t.id))
		return settle(op, err)
	case t.job == erase:
		op := t.c.Swap(t.key, is, "")
		_, err = c.registers.Delete(ctx, t.key, from.Revision)
		return settle(op, err)
	}
	op := t.c.Swap(t.key, is, t.id)
	_, err = c.registers.CompareAndSwap(ctx, t.key, from.Revision, []byte(t.id))
	return settle(op, err)
}

func settle(op interface {
	OK()
	Refused()
	Failed()
	Unknown()
}, err error,
) error {
	switch {
	case err == nil:
		op.OK()
	case errors.Is(err, holdfast.ErrUnknown):
		op.Unknown()
	case errors.Is(err, optimistic.ErrConflict), errors.Is(err, optimistic.ErrNotFound):
		op.Refused()
	default:
		op.Failed() // an error other than "unknown" means not done
		return err
	}
	return nil
}

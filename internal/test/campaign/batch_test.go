//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// batch claims several payouts in one transaction.
func (c *client[Tx]) batch(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	var tasks []*task
	var rows []payoutRow
	for i := range 1 + t.books {
		one := *t
		one.key, one.id, one.fails = keyOf(t.b.epoch, t.what, (t.plan.key+7*i)%t.keys), fmt.Sprint(t.id, ".", i), t.fails && i == 1
		tasks = append(tasks, &one)
		rows = append(rows, payoutRow{No: one.key, Amount: 100, Who: one.id, Epoch: int64(t.b.epoch)})
	}
	told := make([]answer, len(rows))
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		answers, err := c.payouts.ClaimAllTx(ctx, tx, rows)
		if err != nil {
			return err
		}
		for i, a := range answers {
			told[i] = answer{Outcome: replayed, Value: a.Row.Who}
			if a.Err != nil {
				return a.Err
			}
			if a.Outcome != idempotency.Executed {
				continue
			}
			if told[i].Outcome = executed; c.effect(ctx, tx, tasks[i], tasks[i].id) != nil {
				return errors.New("the effect of a row failed")
			}
		}
		return nil
	}, holdfast.TxOptions{LockTimeout: 2 * time.Second})
	for i, one := range tasks {
		a := told[i]
		switch {
		case errors.Is(err, holdfast.ErrUnknown):
			a = answer{Outcome: unknown}
		case err != nil:
			a = answer{Outcome: refused, Err: err.Error()}
		}
		a.Job, a.Key, a.ID = t.job, one.key, one.id
		t.b.told(a)
	}
	return err
}

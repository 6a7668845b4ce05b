//go:build unix

package campaign

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// original is a refund that others cancel at the same time.
func (c *client[Tx]) original(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	r, err := idempotency.Do(ctx, c.store, c.voidable(t), func(ctx context.Context, tx Tx) (string, error) {
		return t.id, c.effect(ctx, tx, t, t.id)
	})
	if c.isVoided(t, err) {
		return nil
	}
	c.tell(t, r.Outcome, r.Value, err)
	return err
}

// isVoided records that a caller was told that its operation was cancelled.
func (c *client[Tx]) isVoided(t *task, err error) bool {
	var no *idempotency.Rejection
	if !errors.As(err, &no) || no.Code != idempotency.CodeVoided {
		return false
	}
	t.b.told(answer{Job: t.job, Key: t.key, ID: t.id, Outcome: voided})
	return true
}

// void cancels such a refund, which may come later.
func (c *client[Tx]) void(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	if c.Control == cancelByLook {
		found, err := idempotency.Lookup[string](ctx, c.store, c.voidable(t))
		if err == nil && found.State != idempotency.StateAbsent {
			err = idempotency.ErrTooLate
		}
		return c.tellCancel(t, err)
	}
	_, err := c.store.Void(ctx, c.voidable(t), "a campaign")
	return c.tellCancel(t, err)
}

func (c *client[Tx]) voidable(t *task) idempotency.Op {
	return idempotency.Op{Name: "refund", Key: t.key, Request: t.key, Wait: map[bool]time.Duration{true: holdfast.NoWait}[t.try]}
}

// auditVoids compares the cancels of an epoch with its effects. Neither of the answers "cancelled"
// and "too late" changes any more.
func (c *campaign) auditVoids(epoch int, answers []answer) {
	effects := c.once("an effect", c.rows(`SELECT name, id FROM campaign_effects WHERE epoch = $1`, epoch))
	for _, a := range answers {
		if a.Job != original && a.Job != void {
			continue
		}
		if _, is := effects[a.Key]; a.Outcome == voided && is || a.Outcome == late && !is {
			c.violationf("epoch %d: %s of %q by %s was told %s, and the tables have the effect by %q", epoch, a.Job, a.Key, a.ID, a.Outcome, effects[a.Key])
		}
	}
}

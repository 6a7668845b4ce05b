//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
)

// similar requests a refund under one of several keys that were generated for one intent.
func (c *client[Tx]) similar(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	intent := t.key
	t.key = fmt.Sprint(intent, "/", t.plan.key/t.keys%5)
	// No fault moves a clock by as much as the window.
	op := idempotency.Op{Name: "similar", Key: t.key, Request: t.key, Similar: &idempotency.Similar{By: []string{intent}, Window: 72 * time.Hour}}
	if c.Control == noSimilar {
		op.Similar = nil
	}
	if t.try {
		op.Wait = holdfast.NoWait
	}
	r, err := idempotency.Do(ctx, c.store, op, func(ctx context.Context, tx Tx) (string, error) {
		return t.id, c.effect(ctx, tx, t, t.id)
	})
	c.tell(t, r.Outcome, r.Value, err)
	if errors.Is(err, idempotency.ErrSimilar) {
		return nil
	}
	return err
}

// auditSimilar checks that no intent of an epoch has the effects of two keys.
func (c *campaign) auditSimilar(epoch int, _ []answer) {
	first := map[string]string{}
	for _, r := range c.rows(`SELECT name, id FROM campaign_effects WHERE epoch = $1`, epoch) {
		intent := path.Dir(r[0])
		if path.Base(path.Dir(intent)) != "similar" {
			continue
		}
		if by, twice := first[intent]; twice {
			c.violationf("epoch %d: two effects of the intent %q: of the keys %q and %q", epoch, intent, by, r[0])
		}
		first[intent] = r[0]
	}
}

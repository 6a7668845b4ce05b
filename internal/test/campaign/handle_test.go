//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// offer acquires a lease, writes under its guard, and leaves its handle in a table. Then it stops,
// or releases the lease: the release and the hand-over exclude each other.
func (c *client[Tx]) offer(ctx context.Context, t *task) error {
	lease, term, err := c.get(ctx, t, c.lease)
	if lease == nil {
		return err
	}
	h := &holding{lease: lease, term: term}
	if err := c.book(ctx, t, h); err != nil {
		return errors.Join(err, c.release(ctx, t, h))
	}
	handle, err := lease.Handle()
	if err != nil {
		return errors.Join(err, c.release(ctx, t, h))
	}
	term.Ended() // from here on its guards count alone
	err = c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		return c.exec(ctx, tx, `INSERT INTO campaign_handles (name, token, id, handle, epoch) VALUES ($1, $2, $3, $4, $5)`, []byte(t.key), lease.Token(), t.id, string(handle), t.b.epoch)
	})
	if t.plan.key%3 != 0 {
		return err // its end is that of the hand-over, or the TTL
	}
	time.Sleep(t.hold)
	a := answer{Job: t.job, Key: t.key, ID: t.id, Outcome: unknown}
	switch released := lease.Release(ctx); {
	case released == nil:
		a.Outcome = executed
	case errors.Is(released, sqllock.ErrLost):
		a.Outcome = refused
	default:
		err = errors.Join(err, released)
	}
	t.b.told(a)
	return err
}

// resume takes the newest lease of a key up, and writes under its guard.
func (c *client[Tx]) resume(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	var token int64
	var id, handle string
	found := false
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		q, err := access.Of(c.db).Join(tx)
		if err == nil {
			found, err = core.Compile("", `SELECT token, id, handle FROM campaign_handles WHERE name = $1 ORDER BY token DESC LIMIT 1`,
				c.db.Engine() != holdfast.PostgreSQL).QueryRow(ctx, q, []any{&token, &id, &handle}, []byte(t.key))
		}
		return err
	})
	if err != nil || !found {
		return errors.Join(err, errors.New("there is no handle"))
	}
	a := answer{Job: t.job, Key: t.key, ID: id, Outcome: executed, Value: fmt.Sprint(token)}
	if c.Control == resumeByToken {
		t.b.told(a)
		return nil
	}
	lease, err := c.locks.Resume(ctx, sqllock.Handle(handle), sqllock.AcquireOptions{TTL: ttl})
	switch {
	case err == nil:
		a.Value = fmt.Sprint(lease.Token())
	case errors.Is(err, sqllock.ErrLost):
		a.Outcome = refused
	default:
		a.Outcome, a.Err = unknown, err.Error()
	}
	t.b.told(a)
	if err != nil {
		return err
	}
	// Its term is the first holder's, which the history has already seen end.
	written := &holding{lease: lease, term: history.New().Client(0).Grant(t.key).Won(lease.Token(), time.Time{})}
	return errors.Join(c.book(ctx, t, written), lease.Release(ctx))
}

// auditHandles checks that no handle of an epoch was resumed twice, and none after its release.
func (c *campaign) auditHandles(epoch int, answers []answer) {
	tokens := c.once("a handle", c.rows(`SELECT id, token FROM campaign_handles WHERE epoch = $1`, epoch))
	released, resumed := map[string]bool{}, map[string]bool{}
	for _, a := range answers {
		switch {
		case a.Job == offer && a.Outcome == executed:
			released[a.ID] = true
		case a.Job == resume && a.Outcome == executed:
			if resumed[a.ID] {
				c.violationf("epoch %d: the handle %s of %q was resumed twice", epoch, a.ID, a.Key)
			}
			if resumed[a.ID] = true; a.Value != tokens[a.ID] {
				c.violationf("epoch %d: the handle %s of %q was resumed with the token %s, it had %q", epoch, a.ID, a.Key, a.Value, tokens[a.ID])
			}
		}
	}
	for id := range released {
		if resumed[id] {
			c.violationf("epoch %d: the lease of the handle %s was released and resumed", epoch, id)
		}
	}
}

//go:build unix

package campaign

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
)

const (
	outboxName  = "campaign"
	messageKeys = 2 // in an epoch
)

func (c *client[Tx]) openOutbox(ctx context.Context) (err error) {
	if c.box, err = outbox.New(ctx, c.db, outboxName); err != nil {
		return err
	}
	c.relay, err = outbox.NewRelay(c.box, c.publish, outbox.Options{
		Lease: 700 * time.Millisecond, Keys: 4, Batch: 5, MaxAttempts: 1_000_000, Backoff: 10 * time.Millisecond, MaxBackoff: 200 * time.Millisecond,
		Poll: 300 * time.Millisecond, Keep: holdfast.Forever, Logger: slog.New(slog.DiscardHandler),
	})
	return err
}

// publish hands a message to the bank.
func (c *client[Tx]) publish(ctx context.Context, d outbox.Delivery) error {
	hand := func(ctx context.Context) error {
		_, err := askBank(ctx, c.Bank+"/message", "Message-Key", d.Key, d.ID)
		return err
	}
	if c.Control == publishLater {
		time.AfterFunc(time.Second, func() { _ = hand(context.WithoutCancel(ctx)) })
		return nil
	}
	err := hand(ctx)
	if err == nil && !c.Finish {
		c.count(deliver, 1)
	}
	return err
}

// runOutbox is a relay, in every client.
func (c *client[Tx]) runOutbox(ctx context.Context) { _ = c.relay.Run(ctx) }

// finishOutbox publishes what is left.
func (c *client[Tx]) finishOutbox(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := c.relay.Pass(ctx); err != nil {
			return err
		}
		s, err := c.box.Stats(ctx)
		if err != nil || s.Waiting == 0 {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil // the audit names them
}

// post writes a row and its message in one transaction.
func (c *client[Tx]) post(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	a := answer{Job: t.job, Key: t.key, ID: t.id, Outcome: executed}
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := c.exec(ctx, tx, `INSERT INTO campaign_posts (id, name, epoch) VALUES ($1, $2, $3)`, t.id, []byte(t.key), t.b.epoch); err != nil {
			return err
		}
		if err := c.box.Write(ctx, tx, outbox.Message{Key: t.key, ID: t.id, Topic: "posted", Body: []byte(t.id)}); err != nil {
			return err
		}
		time.Sleep(t.think)
		if t.fails {
			return errors.New("it fails on purpose")
		}
		return nil
	}, holdfast.TxOptions{LockTimeout: 2 * time.Second})
	switch {
	case errors.Is(err, holdfast.ErrUnknown):
		a.Outcome = unknown
	case err != nil:
		a.Outcome, a.Err = refused, err.Error()
	}
	t.b.told(a)
	return err
}

// auditMessages judges an epoch's messages: what is marked as published was handed over.
func (c *campaign) auditMessages(epoch int, answers []answer) {
	posts := c.once("a post", c.rows(`SELECT id, name FROM campaign_posts WHERE epoch = $1`, epoch))
	for _, a := range answers {
		if _, is := posts[a.ID]; a.Job == post && (a.Outcome == executed && !is || a.Outcome == refused && is) {
			c.violationf("epoch %d: the post %s was told %s, and it is in the table: %v", epoch, a.ID, a.Outcome, is)
		}
	}
	for n := range messageKeys {
		key := keyOf(epoch, "message", n)
		marked := c.messages(key)
		handed := map[string]bool{}
		for _, id := range c.site.bank.handed(key) {
			handed[id] = true
			if posts[id] != key {
				c.violationf("epoch %d: the message %s of %q was published, and its transaction did not commit", epoch, id, key)
			}
		}
		for _, m := range marked {
			if m.published && !handed[m.id] {
				c.violationf("epoch %d: the message %s of %q is marked as published, and nobody got it", epoch, m.id, key)
			}
		}
	}
}

type message struct {
	id        string
	published bool
}

// messages reads the messages of a key in their order.
func (c *campaign) messages(key string) (all []message) {
	for _, r := range c.rows(`SELECT id, state FROM holdfast_outbox WHERE owner = '' AND name = '`+outboxName+`' AND message_key = $1 ORDER BY seq`, []byte(key)) {
		all = append(all, message{r[0], r[1] == "2"})
	}
	return all
}

// auditOutbox judges all messages at the end: each was handed over and marked, and first in the
// order of its key.
func (c *campaign) auditOutbox() {
	posts := c.once("a post", c.rows(`SELECT id, name FROM campaign_posts`))
	for epoch := range c.clients[0].order.epoch() + 1 {
		for n := range messageKeys {
			key := keyOf(epoch, "message", n)
			var first []string
			seen := map[string]bool{}
			for _, id := range c.site.bank.handed(key) {
				if !seen[id] {
					first = append(first, id)
				}
				seen[id] = true
			}
			for i, m := range c.messages(key) {
				if posts[m.id] != key {
					c.violationf("the message %s of %q has no post", m.id, key)
				}
				delete(posts, m.id)
				if !m.published || i >= len(first) || first[i] != m.id {
					c.violationf("the message %s is number %d of %q, marked as published: %v; the bank got %v", m.id, i, key, m.published, first)
				}
			}
		}
	}
	for id, key := range posts {
		c.violationf("the post %s of %q has no message", id, key)
	}
}

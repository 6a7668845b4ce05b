// Package messages shows an outbox and an inbox around a broker that delivers at least once, here
// NATS JetStream. The event is written in the transaction of its cause, and booked in the
// transaction that stores its id. In between it may be published twice and delivered many times,
// and its consumer may be killed at any point. It is booked once.
//
// Start with relay.go (the producer's side), then read Consumer. For another broker, change only
// the lines that name jetstream.
package messages

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-go/holdfast/idempotency/inbox"
)

// Consumer books the events that a broker delivers.
type Consumer struct {
	Messages jetstream.Consumer
	Inbox    *inbox.Inbox[*sql.Tx]
	// Book has effects in the database only, through tx only.
	Book func(ctx context.Context, tx *sql.Tx, event []byte) error
	// Acknowledge tells the broker that an event is done. It is jetstream.Msg.Ack; the
	// acknowledgement may be lost on the way.
	Acknowledge func(jetstream.Msg) error
}

// Run books events until ctx ends.
func (c *Consumer) Run(ctx context.Context) error {
	it, err := c.Messages.Messages(jetstream.PullMaxMessages(8))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, it.Stop)()
	for {
		msg, err := it.Next()
		switch {
		case ctx.Err() != nil, errors.Is(err, jetstream.ErrMsgIteratorClosed):
			return nil
		case err != nil:
			return err
		}
		if err := c.deliver(ctx, msg); err != nil {
			// The broker did not get the acknowledgement, so it delivers again.
			slog.WarnContext(ctx, "telling the broker", "err", err)
		}
	}
}

// deliver acknowledges after COMMIT, never before.
func (c *Consumer) deliver(ctx context.Context, msg jetstream.Msg) error {
	event := inbox.Message{ID: msg.Headers().Get(jetstream.MsgIDHeader), Body: msg.Data()}
	_, err := c.Inbox.Process(ctx, event, func(ctx context.Context, tx *sql.Tx) error {
		return c.Book(ctx, tx, msg.Data())
	})
	switch inbox.DispositionOf(err) {
	case inbox.Acknowledge:
		return c.Acknowledge(msg)
	case inbox.Quarantine:
		slog.ErrorContext(ctx, "an event for a person to look at", "id", event.ID, "err", err)
		return msg.TermWithReason(err.Error())
	default:
		slog.WarnContext(ctx, "not booked, to be delivered again", "id", event.ID, "err", err)
		return msg.NakWithDelay(100 * time.Millisecond)
	}
}

package messages

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Schema are the producer's tables: what it does, and what it has to tell.
const Schema = `
CREATE TABLE refunds (order_no TEXT NOT NULL PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE outbox (id INTEGER NOT NULL PRIMARY KEY, body TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0);
CREATE INDEX outbox_unsent ON outbox (id) WHERE sent = 0`

// Refund makes one refund and, in the same transaction, writes the event of it:
// neither is there without the other.
func Refund(ctx context.Context, store *idempotency.Store[*sql.Tx], order string, cents int) (idempotency.Outcome, error) {
	op := idempotency.Op{Name: "refund", Key: idempotency.KeyOf(order), Request: cents}
	r, err := idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (idempotency.ID, error) {
		if _, err := tx.ExecContext(ctx, `INSERT INTO refunds (order_no, cents) VALUES (?, ?)`, order, cents); err != nil {
			return "", err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO outbox (body) VALUES (?)`, order)
		return idempotency.ID(order), err
	})
	return r.Outcome, err
}

// Event is a row of the outbox.
type Event struct {
	ID   int64  `db:"id"`
	Body string `db:"body"`
	Sent int    `db:"sent"`
}

// Relay publishes what the outbox has. Several of them share its rows out.
type Relay struct {
	DB      *holdfast.DB[*sql.Tx]
	Outbox  *sqllock.Table[Event, *sql.Tx]
	Stream  jetstream.JetStream
	Subject string
}

// NewRelay opens a relay.
func NewRelay(ctx context.Context, db *holdfast.DB[*sql.Tx], locks *sqllock.Locker[*sql.Tx], stream jetstream.JetStream, subject string) (*Relay, error) {
	outbox, err := sqllock.NewTable[Event](ctx, locks, sqllock.TableSpec{Table: "outbox", Key: []string{"id"}})
	return &Relay{db, outbox, stream, subject}, err
}

// Send publishes up to n events and marks them as sent, in one transaction that
// holds their locks; it returns how many. A relay that dies before its COMMIT
// has published events which the next one publishes again, under the same
// message id: that is what the inbox is for. On one writer, such as SQLite's,
// keep n small, for the lock lasts while the broker answers.
func (r *Relay) Send(ctx context.Context, n int) (sent int, err error) {
	err = r.DB.InTx(ctx, holdfast.TxOptions{}, func(ctx context.Context, tx *sql.Tx) error {
		sent = 0 // the function may run more than once
		events, err := r.Outbox.NextTx(ctx, tx, n, sqllock.Where("sent", "=", 0))
		if err != nil {
			return err
		}
		for _, e := range events {
			id := "outbox-" + strconv.FormatInt(e.ID, 10)
			if _, err := r.Stream.Publish(ctx, r.Subject, []byte(e.Body), jetstream.WithMsgID(id)); err != nil {
				return err // what was published before it is published again
			}
			if _, err := tx.ExecContext(ctx, `UPDATE outbox SET sent = 1 WHERE id = ?`, e.ID); err != nil {
				return err
			}
			sent++
		}
		return nil
	})
	return sent, err
}

package messages

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Schema creates the producer's tables: its refunds and its outbox.
const Schema = `
CREATE TABLE refunds (order_no TEXT NOT NULL PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE outbox (id INTEGER NOT NULL PRIMARY KEY, body TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0);
CREATE INDEX outbox_unsent ON outbox (id) WHERE sent = 0`

// Refund makes one refund and writes its event in the same transaction: neither exists without the
// other.
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

// Relay publishes the events of the outbox. Several relays share its rows.
type Relay struct {
	DB      *holdfast.DB[*sql.Tx]
	Outbox  *rowlock.Table[Event, *sql.Tx]
	Stream  jetstream.JetStream
	Subject string
}

// NewRelay opens a relay.
func NewRelay(ctx context.Context, db *holdfast.DB[*sql.Tx], stream jetstream.JetStream, subject string) (*Relay, error) {
	outbox, err := rowlock.NewTable[Event](ctx, db, holdfast.TableSpec{Table: "outbox", Key: []string{"id"}})
	return &Relay{db, outbox, stream, subject}, err
}

// Send publishes up to n events and marks them as sent, in one transaction that holds their locks;
// it returns how many. If a relay dies before its COMMIT, the next one publishes its events again,
// under the same message ids; the inbox detects them. On an engine with one writer, such as
// SQLite, keep n small, because the lock lasts while the broker answers.
func (r *Relay) Send(ctx context.Context, n int) (sent int, err error) {
	err = r.DB.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sent = 0 // the function may run more than once
		events, err := r.Outbox.NextTx(ctx, tx, n, holdfast.Where("sent", "=", 0))
		if err != nil {
			return err
		}
		for _, e := range events {
			id := "outbox-" + strconv.FormatInt(e.ID, 10)
			if _, err := r.Stream.Publish(ctx, r.Subject, []byte(e.Body), jetstream.WithMsgID(id)); err != nil {
				return err // events that were already published are published again
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

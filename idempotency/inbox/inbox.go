package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// Inbox processes each message of one consumer once. It works with every broker that delivers at
// least once, such as NATS JetStream, RabbitMQ, Kafka and SQS:
//
//	_, err := in.Process(ctx, inbox.Message{ID: id, Body: body}, book)
//	switch inbox.DispositionOf(err) {
//	case inbox.Acknowledge: msg.Ack()
//	case inbox.Redeliver:   msg.NakWithDelay(time.Second)
//	case inbox.Quarantine:  msg.Term() // and keep it for a person
//	}
//
// A message that is delivered after its key has expired is processed again. Keep keys for ever, or
// for longer than a broker may deliver, a stream may be replayed and a backup may be restored.
type Inbox[Tx any] struct {
	store    *idempotency.Store[Tx]
	consumer string
}

// Message is a message from a broker.
type Message struct {
	// Owner as in Op: required, unless the DB is SingleOwner.
	Owner string
	// ID is the producer's id: the same in each delivery, and when the producer publishes the
	// message again. 1 to 1024 bytes. Do not use an offset, or a sequence number of the broker: it
	// changes when the producer sends again.
	ID string
	// Body, if given, is compared. Another body under the same id is ErrMismatch, which reveals a
	// producer that uses an id twice.
	Body []byte
	// Wait bounds the wait for another delivery that is being processed: 1 ms to 366 days.
	// [holdfast.NoWait] returns ErrInProgress at once. Default: the store's Wait.
	Wait time.Duration
}

// New opens the inbox of one consumer in the store's namespace. consumer is a stable name.
// Consumers with different names each process a message once, and so does a renamed consumer. At
// most 122 bytes.
//
// Errors: [holdfast.ErrInvalid].
func New[Tx any](s *idempotency.Store[Tx], consumer string) (*Inbox[Tx], error) {
	if s == nil {
		return nil, once.Invalid("s", "is nil")
	}
	if consumer == "" {
		return nil, once.Invalid("consumer", "is missing: name the consumer that processes the messages")
	}
	in := &Inbox[Tx]{s, "inbox " + consumer} // with a space, so that it differs from the program's own operations
	return in, core.CheckName("consumer", in.consumer, false)
}

// Process runs fn for a message in its own transaction and commits it. The outcome is Executed, or
// Replayed if the message was processed before. fn follows the rules of the function of Do. An
// error of Reject rolls fn's writes back, and the message is not processed again for the store's
// [idempotency.Options].RejectionTTL: 30 days, if neither it nor KeyTTL is set. After that it is processed like a new
// message. If a stream is replayed after a longer time, set it to [holdfast.Forever].
//
// Errors: those of [idempotency.Do]; DispositionOf maps them to the reply to the broker.
func (in *Inbox[Tx]) Process(ctx context.Context, m Message, fn func(ctx context.Context, tx Tx) error) (idempotency.Outcome, error) {
	r, err := idempotency.Do(ctx, in.store, in.op(m), in.body(fn))
	return r.Outcome, err
}

// ProcessTx does what Process does in the consumer's own transaction. Acknowledge the message only
// after the consumer's COMMIT is certain ([holdfast.DB.CommitOutcome]). The rules of
// [idempotency.DoTx] apply.
func (in *Inbox[Tx]) ProcessTx(ctx context.Context, tx Tx, m Message, fn func(ctx context.Context, tx Tx) error) (idempotency.Outcome, error) {
	r, err := idempotency.DoTx(ctx, in.store, tx, in.op(m), in.body(fn))
	return r.Outcome, err
}

func (in *Inbox[Tx]) op(m Message) idempotency.Op {
	return idempotency.Op{
		Owner: m.Owner, Name: in.consumer, Key: m.ID, Wait: m.Wait,
		Fingerprint: m.Body, NoFingerprint: m.Body == nil,
	}
}

func (*Inbox[Tx]) body(fn func(context.Context, Tx) error) func(context.Context, Tx) (struct{}, error) {
	return func(ctx context.Context, tx Tx) (struct{}, error) { return struct{}{}, fn(ctx, tx) }
}

// Disposition is a consumer's reply to its broker about a message.
type Disposition int

// The dispositions of a message.
const (
	// Acknowledge: the message was processed, now or before, or rejected for good.
	Acknowledge Disposition = iota + 1
	// Redeliver: the message was not processed, or that is unknown. Deliver it again after a
	// pause; the broker's own limit ends the redeliveries.
	Redeliver
	// Quarantine: another delivery would fail in the same way. A person must look at the message.
	Quarantine
)

func (d Disposition) String() string {
	switch d {
	case Acknowledge:
		return "acknowledge"
	case Redeliver:
		return "redeliver"
	case Quarantine:
		return "quarantine"
	}
	return "none"
}

// DispositionOf returns the reply to the broker after Process returned err. Acknowledge: nil, a
// *[idempotency.Rejection], [idempotency.ErrExpired] (processed, long ago). Quarantine:
// [idempotency.ErrMismatch], [holdfast.ErrInvalid] (such as an empty id), an
// *[idempotency.UnfinishedError] and a *[idempotency.ResultError]. Redeliver: all other errors, also an
// *[idempotency.InnerError], whose outcome is that of another operation.
func DispositionOf(err error) Disposition {
	var rej *idempotency.Rejection
	var unfinished *idempotency.UnfinishedError
	var result *idempotency.ResultError
	switch {
	case err == nil, errors.As(err, &rej), errors.Is(err, idempotency.ErrExpired):
		return Acknowledge
	case errors.Is(err, idempotency.ErrMismatch), errors.Is(err, holdfast.ErrInvalid), errors.As(err, &unfinished), errors.As(err, &result):
		return Quarantine
	}
	return Redeliver
}

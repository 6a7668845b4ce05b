package idempotency

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast"
)

// Inbox processes the messages of one consumer once each, whatever the broker
// delivers again: NATS JetStream, RabbitMQ, Kafka, SQS. The message's id is the
// key; claim, the consumer's writes and the record are one transaction, and the
// acknowledgement comes after its COMMIT:
//
//	_, err := inbox.Process(ctx, idempotency.Message{ID: id, Body: body}, book)
//	switch idempotency.DispositionOf(err) {
//	case idempotency.Acknowledge: msg.Ack()
//	case idempotency.Redeliver:   msg.NakWithDelay(time.Second)
//	case idempotency.Quarantine:  msg.Term() // and keep it for a person
//	}
//
// A message that is delivered again after its key has expired is processed
// again: keep keys for ever, or longer than the broker may deliver and than
// anybody may replay a stream or restore a backup.
type Inbox[Tx any] struct {
	store    *Store[Tx]
	consumer string
}

// Message is what a broker delivered.
type Message struct {
	// Tenant as in Op: required, unless the store is SingleTenant.
	Tenant string
	// ID is the producer's: the same at each delivery, and when the producer
	// publishes it again. 1 to 1024 bytes. An offset, or a sequence number of
	// the broker's, is none: it changes when the producer sends again.
	ID string
	// Body, if given, is compared: another one under the same id is
	// ErrMismatch, so that a producer that mints ids twice is found.
	Body []byte
	// NoWait answers ErrInProgress at once while another delivery is being
	// processed, instead of waiting for it. Default: wait as the store says.
	NoWait bool
}

// NewInbox opens the inbox of one consumer of the store's namespace. consumer is
// a stable name: consumers with different names process a message once each,
// and so does one that is renamed. At most 122 bytes.
//
// Errors: [holdfast.ErrInvalid].
func NewInbox[Tx any](s *Store[Tx], consumer string) (*Inbox[Tx], error) {
	if s == nil {
		return nil, invalid("s", "is nil")
	}
	if consumer == "" {
		return nil, invalid("consumer", "is missing: name who processes the messages")
	}
	in := &Inbox[Tx]{s, "inbox " + consumer} // no operation of the program's own
	return in, checkName("consumer", in.consumer, false)
}

// Process runs fn for a message in a transaction of its own and commits it:
// Executed, or Replayed when the message was processed before. What holds for
// the function of Do holds for fn. An error of Reject is final: fn's writes are
// rolled back, and the message is not processed again.
//
// Errors: those of [Do]; DispositionOf says what to tell the broker.
func (in *Inbox[Tx]) Process(ctx context.Context, m Message, fn func(ctx context.Context, tx Tx) error) (Outcome, error) {
	r, err := Do(ctx, in.store, in.op(m), in.body(fn))
	return r.Outcome, err
}

// ProcessTx does the same in the consumer's own transaction: acknowledge the
// message when the consumer's COMMIT was certain ([holdfast.DB.CommitOutcome]),
// and not before. What holds for [DoTx] holds here.
func (in *Inbox[Tx]) ProcessTx(ctx context.Context, tx Tx, m Message, fn func(ctx context.Context, tx Tx) error) (Outcome, error) {
	r, err := DoTx(ctx, in.store, tx, in.op(m), in.body(fn))
	return r.Outcome, err
}

func (in *Inbox[Tx]) op(m Message) Op {
	return Op{
		Tenant: m.Tenant, Name: in.consumer, Key: m.ID, NoWait: m.NoWait,
		Fingerprint: m.Body, NoFingerprint: m.Body == nil,
	}
}

func (*Inbox[Tx]) body(fn func(context.Context, Tx) error) func(context.Context, Tx) (struct{}, error) {
	return func(ctx context.Context, tx Tx) (struct{}, error) { return struct{}{}, fn(ctx, tx) }
}

// Disposition is what a consumer tells its broker of a message.
type Disposition int

// The dispositions of a message.
const (
	// Acknowledge: it was processed, now or before, or refused for good.
	Acknowledge Disposition = iota + 1
	// Redeliver: it was not processed, or nobody knows yet. Deliver it again,
	// after a pause; the broker's own limit ends it.
	Redeliver
	// Quarantine: delivered again it would come to the same. A person has to look.
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

// DispositionOf says what to tell the broker after Process returned err.
// Acknowledge: nil, a *[Rejection], [ErrExpired] (processed, long ago).
// Quarantine: [ErrMismatch], [holdfast.ErrInvalid] (such as an empty id), an
// *[UnfinishedError] and a *[ResultError]. Redeliver: all else.
func DispositionOf(err error) Disposition {
	var rej *Rejection
	var unfinished *UnfinishedError
	var result *ResultError
	switch {
	case err == nil, errors.As(err, &rej), errors.Is(err, ErrExpired):
		return Acknowledge
	case errors.Is(err, ErrMismatch), errors.Is(err, holdfast.ErrInvalid), errors.As(err, &unfinished), errors.As(err, &result):
		return Quarantine
	}
	return Redeliver
}

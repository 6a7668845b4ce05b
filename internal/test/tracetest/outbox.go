package tracetest

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency/outbox"
)

// outbox publishes one message, and gives another one up.
func (w *world) outbox() {
	box, err := outbox.New(w.ctx, w.kit.DB, "events")
	w.want(err, nil)
	w.in(func(tx *sql.Tx) {
		m := outbox.Message{Owner: Secret, Key: Secret, ID: Secret, Topic: Secret, Body: []byte(Secret)}
		w.want(box.Write(w.ctx, tx, m, m), nil)
		w.want(box.Write(w.ctx, tx, outbox.Message{Owner: Secret}), holdfast.ErrInvalid)
	})
	answers := []error{nil, outbox.Permanent(errors.New(Secret))}
	relay, err := outbox.NewRelay(box, func(context.Context, outbox.Delivery) error {
		answer := answers[0]
		answers = answers[1:]
		return answer
	})
	w.want(err, nil)
	if n, err := relay.Pass(w.ctx); n != 1 || err != nil {
		w.Fatalf("%d messages were published, %v", n, err)
	}
}

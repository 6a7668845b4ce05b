// Package outbox (experimental) publishes messages that are written in the transaction of their cause. Either both
// commit, or neither does. A relay publishes them afterwards, to any broker, at least once, and the
// messages of a key in the order in which their transactions committed.
//
//	box, err := outbox.New(ctx, db, "refunds")
//	...
//	_, err = tx.ExecContext(ctx, `INSERT INTO refunds ...`)
//	err = box.Write(ctx, tx, outbox.Message{Owner: "shop-7", Key: "order-42", Topic: "refunds.made", Body: body})
//	...
//	relay, err := outbox.NewRelay(box, func(ctx context.Context, d outbox.Delivery) error {
//		return broker.Publish(ctx, d.Topic, d.ID, d.Body)
//	})
//	err = relay.Run(ctx) // in any number of processes
//
// # What it promises
//
//	written --publish--> published --Keep--> gone
//	   ^  '--error: backoff--'  |
//	   |                        '-- MaxAttempts, or Permanent --> dead --Discard--> gone
//	   '--------------------------------Requeue-------------------'
//
// Each committed message is published at least once, or becomes a dead letter. A message of a key is
// never published before an earlier one of the same key was published or discarded: a message that
// fails, and a dead letter, hold up their key and no other.
//
// A message may be published more than once, always with the same ID: a relay may die, or be paused
// past its lease, between publishing and noting it. Such a repetition may arrive after later messages.
// So consumers use the ID, for example with package inbox.
//
// # Order
//
// The first Write of a transaction to a key locks that key until the transaction ends, so that the
// order of the key is that of the commits. Transactions that write to several keys must do it in the
// same order, or they may deadlock ([holdfast.ErrRetry]). Keys that need no order among themselves are
// different keys: use the id of the order, not the name of the table.
//
// # Relays
//
// A relay takes the first message of a key with one conditional update, for the length of its lease,
// and publishes it and those behind it. No transaction and no connection is open during that time. Relays
// share the keys, in any number of processes, and none waits for another.
//
// # Experimental
//
// Before v1.0 the names of methods and options may change in a minor version, and a migration may add columns. A
// message that is written stays publishable by the next version.
package outbox

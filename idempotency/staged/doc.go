// Package staged executes an operation that calls the outside world, such as a refund at a payment
// provider. A transaction cannot hold such a call, so the operation runs in steps, and each step
// commits before the next begins.
//
//	refunds, err := staged.New(store, staged.Workflow[Request, Receipt, *sql.Tx]{
//		Name: "refund",
//		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], req Request) (Receipt, error) {
//			id, err := staged.Local(ctx, r, "book", book)                                  // in this database
//			ref, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, pay) // at the provider
//			return staged.Local(ctx, r, "close", settle)
//		},
//	})
//	res, err := refunds.Do(ctx, op, req)
//
// # The states of an operation
//
//	absent --Do--> pending --Run returns nil-----> succeeded --Erase--> erased
//	               ^  |  ^ --Run returns Reject--> rejected  --Erase--> erased
//	               |  |  |
//	               |  |  '-- error, or the lease ended: tried again after a pause
//	               |  |
//	               |  '-- outcome of a call unknown, or MaxAttempts used up
//	               |  v
//	               '- parked -- an operator, or a provider event, says what happened
//
// An operation begins with Do, or with [Runner.StartTx] in a transaction of the caller, whose commit
// makes it pending. It is settling while a provider that has accepted the call of a step takes its
// time. Final states do not change, but for an expiry. A reversal after success is a new fact beside
// the result ([StepReversed]).
//
// # The states of a step
//
//	absent --Call--> begun --result--> done
//	                   |   --Reject--> rejected
//	                   |   --NotDone----> not done --Call--> begun
//	                   |   --AskAgain---> begun, after a pause
//	                   '-- Accepted --> settling --event--> done, rejected, not done
//	                                       '--deadline--> begun, or parked
//
// A step of [Local] commits its writes and its result at once, so it is absent or done.
//
// # What it promises
//
//   - A step that is done does not run again: the next attempt gets its result.
//   - The provider gets the same idempotency key in every attempt ([Runner.ProviderKey]).
//   - One worker at a time may write. Each attempt has a lease and a fencing token. A worker
//     that lost its lease fails with [ErrStale].
//   - A call whose outcome is unknown is not repeated, unless its [ExternalCall] says how: by
//     querying the provider (Reconcile), or because the provider honours the key (TakeOver).
//
// # Unknown outcomes
//
// The outcome of a call is unknown after an error other than [idempotency.Reject] and [NotDone],
// after a crash, and if the provider contradicts itself, such as with an event "rejected" and an
// answer "done". [Runner.Complete] and the next [Runner.Do] continue an operation whose lease
// has ended. A parked operation waits for [HandleEvent] or for package operators.
//
// # Limits
//
// Run must reach the same steps each time. Do begins outside of transactions ([ErrInTx]). A provider
// that honours keys for a day gets the same key for as long as attempts continue.
package staged

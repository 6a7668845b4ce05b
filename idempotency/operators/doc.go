// Package operators shows operations to people, lets them resolve operations whose outcome is
// unknown, and makes a restored database safe.
//
//	ops := operators.New(store)
//	for op, err := range ops.List(ctx) { // operations whose outcome is unknown
//		...
//		err = ops.Resolve(ctx, op.Ref, operators.Resolution{Step: staged.StepNotDone},
//			holdfast.Actor{By: "ana", Reason: "not in the bank's portal"})
//	}
//
// # What can be resolved
//
//	parked at a step         StepDone, StepRejected, StepNotDone: it continues
//	                         Succeed, Reject: it ends
//	parked at no step        Resume: it continues; Succeed, Reject: it ends
//	record without a result  Succeed, Reject: it ends; Free: the key may run again
//	succeeded, rejected      Erase
//
// Every other combination is [staged.ErrState]: final states do not change. [Choices] lists what
// an operation allows, and [ParseResolution] parses a choice from text, for tools.
//
// Each intervention is stored in the same transaction, with its [holdfast.Actor] and the reason. A result
// is checked against the type that the program stored for it.
//
// # After a restore
//
// [AfterRestore] raises all tokens, ends all leases and parks all pending staged operations of a
// database that lost its last commits.
package operators

package staged

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/options"
)

// askAgainError marks the answer of a provider that cannot tell yet.
type askAgainError struct{ after time.Duration }

func (e *askAgainError) Error() string {
	return fmt.Sprintf("what became of the call is not known yet: asked again in %v", e.after)
}

func (e *askAgainError) check() error { return options.Call.Or("").Check("AskAgain", e.after) }

// AskAgain is the error with which Reconcile says that it cannot tell yet what became of a call, such
// as "not found" for a request that may still be on its way. The outcome stays unknown for now (Do
// returns a *[StepError]), nothing is called, and Reconcile is asked again after the pause, of 1 ms
// to 30 days. The attempt does not count toward Workflow.MaxAttempts, so bound it by [CallAge].
//
// The function of an external call may return it too: its Reconcile, or a TakeOver, follows after
// the pause. Without either, the operation is parked, as after any error.
func AskAgain(after time.Duration) error { return &askAgainError{after} }

// CallAge returns how long ago the call of a step began, by the database's clock. ctx is that of a Reconcile, or of
// the function of an external call. A repetition by TakeOver does not begin a new call: its age counts from the first
// request with this key of which it is not proved that it was not done. It is 0 for a first call, and after a restore
// that has lost when the call began.
//
// In a Reconcile, an answer "not found" proves that a call was not done only if the call is older than
// the slowest execution: the time that its function has (ExternalCall.Timeout, or nine tenths of the Lease), because
// the request may leave at the end of it, and then network, queues and repetitions within the provider.
//
// In the function of a TakeOver, return an error once the age nears the life of the provider's keys: the provider
// may take an older key for a new one. Workflow.MaxAttempts bounds how often it is called, not how long.
//
// CallAge panics if ctx is of no external call.
func CallAge(ctx context.Context) time.Duration {
	at := callOf(ctx, "CallAge")
	if at.age <= 0 {
		return 0
	}
	return at.age + time.Since(at.attempt)
}

func callOf(ctx context.Context, what string) *calling {
	at, ok := ctx.Value(callingKey{}).(*calling)
	if !ok {
		panic("staged: " + what + " needs the context of an external call")
	}
	return at
}

package staged

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/options"
)

// Defaults of the fields of Workflow.
const (
	defaultLease       = time.Minute
	defaultMaxAttempts = 10
	defaultBackoff     = time.Second
	defaultMaxBackoff  = 5 * time.Minute
)

// Workflow describes an operation that calls the outside world, such as a refund at a payment
// provider. A transaction cannot hold such a call, so the operation runs in steps, and each step
// commits before the next begins.
type Workflow[Req, Res, Tx any] struct {
	// Name is the operation's name, as Op.Name: stable, at most 128 bytes. Required.
	Name string
	// Run is the operation. It does everything through steps ([Local], [Call]) and may run again,
	// in another process. Steps that were done return their stored results, so Run must reach the
	// same steps each time. A nil error ends the operation as succeeded and [idempotency.Reject]
	// as rejected. After any other error it is tried again later, up to MaxAttempts. Required.
	Run func(ctx context.Context, r *Run[Tx], request Req) (Res, error)

	// Undo takes back what the local steps of an operation, and the transaction of its StartTx, have written, in the
	// transaction in which [Runner.Cancel] ends it. It follows the rules of the function of [idempotency.Do], and op
	// has the steps that were done. It does not run for an operation that had not begun. Default: none; an operation
	// that has done a step cannot be cancelled.
	Undo func(ctx context.Context, tx Tx, request Req, op Operation) error

	// Lease is how long a worker has an operation, from the beginning of each step. A call that may
	// take longer needs an ExternalCall.Timeout, and then the lease is renewed. Contexts of steps end a tenth of it earlier, and
	// after it any worker may continue. Default: a minute; 50 ms to 24 h, exact to the
	// microsecond, by the database's clock.
	Lease time.Duration
	// MaxAttempts is how often an operation is begun before it is parked as unknown, crashes
	// included; at most 1,000,000. An attempt that called nothing outside does not count if Holdfast
	// could not read or write its own tables, as with a database that is overloaded, if the caller's
	// context ended between steps, or if Reconcile said AskAgain. Default: 10.
	MaxAttempts int
	// Backoff is the pause after the first failed attempt. It doubles with each attempt, up to
	// MaxBackoff, and has jitter. Defaults: a second, 5 minutes. Both: 1 ms to 24 h.
	Backoff, MaxBackoff time.Duration
	// KeyFormat is the form of the provider's keys. It must not change while operations are
	// pending.
	KeyFormat KeyFormat
}

// Runner runs the operations of one kind. It is safe for concurrent use.
type Runner[Req, Res, Tx any] struct {
	transitions *transitions[Tx]
	workflow    Workflow[Req, Res, Tx]
	holder      string
	local       *local
}

// New checks workflow and returns its runner. The records belong to the store's namespace. The
// store's options Wait, MaxResult, Codec, Isolation, LockTimeout, Attempts, ResultTTL, KeyTTL, MaxNew
// and MaxRecords apply, and requests and results of steps are stored as results are. After ResultTTL, from the end
// of an operation, its request and the results of its steps and bodies of its events count as
// expired; after KeyTTL it is forgotten, and runs again when it is asked for.
//
// Errors: [holdfast.ErrInvalid].
func New[Req, Res, Tx any](s *idempotency.Store[Tx], workflow Workflow[Req, Res, Tx]) (*Runner[Req, Res, Tx], error) {
	if s == nil {
		return nil, once.Invalid("store", "is nil")
	}
	d := func(v *time.Duration, fallback time.Duration) {
		if *v == 0 {
			*v = fallback
		}
	}
	d(&workflow.Lease, defaultLease)
	d(&workflow.Backoff, defaultBackoff)
	d(&workflow.MaxBackoff, max(defaultMaxBackoff, workflow.Backoff))
	if workflow.KeyFormat.Length == 0 {
		workflow.KeyFormat.Length = defaultProviderKey
	}
	if workflow.MaxAttempts == 0 {
		workflow.MaxAttempts = defaultMaxAttempts
	}
	switch {
	case workflow.Run == nil:
		return nil, once.Invalid("Workflow.Run", "is missing")
	case workflow.MaxBackoff < workflow.Backoff && workflow.MaxBackoff >= options.Pause.Least:
		return nil, once.Invalid("Workflow.MaxBackoff", "is shorter than Backoff")
	}
	if err := cmp.Or(
		core.CheckName("Workflow.Name", workflow.Name, false),
		options.Lease.Check("Workflow.Lease", workflow.Lease),
		options.Attempts.Check("Workflow.MaxAttempts", int64(workflow.MaxAttempts)),
		options.Pause.Check("Workflow.Backoff", workflow.Backoff),
		options.Pause.Check("Workflow.MaxBackoff", workflow.MaxBackoff),
		workflow.KeyFormat.check(),
	); err != nil {
		return nil, err
	}
	return &Runner[Req, Res, Tx]{transitions: newTransitions(s), workflow: workflow, holder: once.Cut(core.DefaultHolder(), 255), local: newLocal()}, nil
}

// Name returns the name of the runner's operations.
func (s *Runner[Req, Res, Tx]) Name() string { return s.workflow.Name }

// ProviderKey returns the idempotency key that a step of an operation gives to its provider. It
// never changes, and every process derives the same one.
func (s *Runner[Req, Res, Tx]) ProviderKey(ref Ref, step string) string {
	ref.Name = s.workflow.Name
	return s.workflow.KeyFormat.derive(s.transitions.id(ref).Hash, step)
}

// Do runs the operation, or returns the result from its record. op.Name may be empty, and
// op.Request (unless a Fingerprint is given) is request.
//
// Call it outside of every transaction, because each step has its own. With a context of a
// function that runs within a transaction, Do fails with [ErrInTx]. It cannot detect a transaction
// that you began yourself.
//
// It works in the calling goroutine. If ctx ends, Do stops between steps, never within an external
// call: it completes a call that has begun, or waits until the end of its lease. While another
// worker has the operation, Do waits as long as Op.Wait says.
//
// Errors: *[idempotency.Rejection]; [idempotency.ErrInProgress]; [idempotency.ErrMismatch];
// [idempotency.ErrTooMany]; [idempotency.ErrExpired] if it was erased; [idempotency.ErrUnknown], as *[StepError] or
// *[ParkedError]; *[AcceptedError], which is an ErrInProgress; [ErrStale]; [idempotency.ErrNested]; [ErrInTx]; [holdfast.ErrInvalid],
// [holdfast.ErrSchema]; errors of ctx; errors of Run, after which the next call or
// [Runner.Complete] tries the operation again.
func (s *Runner[Req, Res, Tx]) Do(ctx context.Context, op idempotency.Op, request Req) (res idempotency.Result[Res], err error) {
	ctx, span := once.StartSpan(ctx, s.transitions.Access.Trace, "staged.do", s.workflow.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	if err := s.outside(ctx); err != nil {
		return idempotency.Result[Res]{}, err
	}
	c, err := s.check(op, request)
	if err != nil {
		return idempotency.Result[Res]{}, err
	}
	inner, err := s.transitions.store.Enter(ctx, c.ID.Hash)
	if err != nil {
		return idempotency.Result[Res]{}, err
	}
	start, pause := time.Now(), core.NewBackoff()
	for {
		row, err := s.visit(ctx, c, request)
		if err != nil {
			return idempotency.Result[Res]{}, err
		}
		if err := c.Compare(row.FingerprintVersion, row.Fingerprint); err != nil {
			return idempotency.Result[Res]{}, err
		}
		switch {
		case row.Mine:
			return s.drive(ctx, inner, c, row)
		case row.State != ledger.Pending:
			span.Original = row.RequestID
			return s.answer(c, row, idempotency.Replayed)
		case row.Accepted == 1 && row.Left > 0:
			return idempotency.Result[Res]{}, settling(row)
		case row.Left <= 0:
			if row, err = s.take(ctx, c, row); err != nil {
				return idempotency.Result[Res]{}, err
			}
			if row.Mine {
				return s.drive(ctx, inner, c, row)
			}
			continue
		}
		if waited := time.Since(start); op.Wait == holdfast.NoWait || waited > c.Wait {
			return idempotency.Result[Res]{}, &idempotency.InProgressError{Waited: waited}
		}
		if err := pause.Sleep(ctx); err != nil {
			return idempotency.Result[Res]{}, err
		}
	}
}

func (s *Runner[Req, Res, Tx]) check(op idempotency.Op, request Req) (*once.Checked, error) {
	if op.Name != "" && op.Name != s.workflow.Name {
		return nil, once.Invalid("Op.Name", fmt.Sprintf("is %q, the operation is %q", op.Name, s.workflow.Name))
	}
	if op.Similar != nil {
		return nil, once.Invalid("Op.Similar", "is not for a staged operation, which may be rejected long after it began: begin it with StartTx in a function of idempotency.Do, whose Op has the Similar")
	}
	op.Name = s.workflow.Name
	if op.Request == nil && op.Fingerprint == nil && !op.NoFingerprint {
		op.Request = request
	}
	checked, err := s.transitions.store.Check(op)
	if err != nil {
		return nil, err
	}
	return &checked, nil
}

// drive runs the operation, stores its outcome, and wakes those who wait for it in this process.
func (s *Runner[Req, Res, Tx]) drive(caller, inner context.Context, c *once.Checked, row *ledger.Row) (res idempotency.Result[Res], err error) {
	inner, span := s.attempt(inner)
	defer s.local.moved(c.ID)
	defer func() {
		span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) })
		s.parked(inner, err)
	}()
	return s.run(caller, inner, c, row)
}

func (s *Runner[Req, Res, Tx]) run(caller, inner context.Context, c *once.Checked, row *ledger.Row) (idempotency.Result[Res], error) {
	ctx := context.WithoutCancel(inner)
	r := &Run[Tx]{
		transitions: s.transitions, caller: caller, id: c.ID, attempt: row.Attempt, token: row.Token, restored: row.Restored == 1, fresh: row.Fresh,
		lease: s.workflow.Lease, until: row.Until, format: s.workflow.KeyFormat, used: map[string]bool{},
	}
	var request Req
	var result Res
	err := s.transitions.unpack(c.ID, ofRequest, row.Request, &request)
	if err == nil {
		if result, err = s.workflow.Run(ctx, r, request); !r.unknown {
			err = once.Inner(err)
		}
	}
	var rej *idempotency.Rejection
	switch {
	case r.over != nil: // parked, or lost
		return idempotency.Result[Res]{}, r.over
	case r.open != nil: // regardless of what Run returned
		err = r.open
	case err == nil:
		var out idempotency.Result[Res]
		if out, err = s.finish(ctx, c, r, ledger.Succeeded, result); err == nil {
			return out, nil
		}
	case once.Decides(err, &rej):
		return s.finish(ctx, c, r, ledger.Rejected, rej)
	}
	if r.over != nil {
		return idempotency.Result[Res]{}, r.over
	}
	uncounted := 0
	wait := s.pause(row.Finished + 1)
	switch {
	case r.open != nil && r.again > 0:
		uncounted, wait = 1, r.again
	case !r.tried && r.blocked != nil && errors.Is(err, r.blocked):
		uncounted, wait = 1, s.pause(max(row.Finished+1, calmAfter))
	case r.open == nil && r.stopped: // the caller's context ended; the attempt did not fail
		uncounted, wait = 1, 0
	}
	if row.Started >= s.workflow.MaxAttempts && uncounted == 0 {
		settled, e := r.park(ctx, r.openStep(), once.Cut(fmt.Sprintf("%d attempts were started; the last error: %v", row.Started, err), maxReason))
		if settled == nil {
			return idempotency.Result[Res]{}, e
		}
		uncounted, wait = 1, 0 // an event has answered the call: the next attempt goes on from there
	}
	if e := s.giveBack(ctx, r, wait, once.Cut(err.Error(), maxReason), uncounted); e != nil {
		err = errors.Join(err, e)
	}
	return idempotency.Result[Res]{}, once.Settle(err)
}

// calmAfter is the number of failures whose pause an attempt gets that does not count: the database
// is to recover.
const calmAfter = 4

// giveBack releases the operation. For an attempt that does not count, it is tried until the lease or
// the caller's context ends, because only the row can say so.
func (s *Runner[Req, Res, Tx]) giveBack(ctx context.Context, r *Run[Tx], wait time.Duration, reason string, uncounted int) error {
	for pause := core.NewBackoff(); ; {
		err := r.note(s.transitions.release(ctx, r, wait, reason, uncounted))
		if err == nil || uncounted == 0 || r.over != nil || time.Now().After(r.until) || pause.Sleep(r.caller) != nil { //nolint:contextcheck // it is the caller's that ends
			return err
		}
	}
}

// finish ends the operation with its result.
func (s *Runner[Req, Res, Tx]) finish(ctx context.Context, c *once.Checked, r *Run[Tx], state int, v any) (idempotency.Result[Res], error) {
	var to any = new(Res)
	if state == ledger.Rejected {
		to = new(idempotency.Rejection)
	}
	stored, err := s.transitions.packBack(c.ID, verdict(state == ledger.Rejected), v, to)
	if err == nil {
		err = r.note(s.transitions.finish(ctx, r, state, stored))
	}
	if err != nil {
		return idempotency.Result[Res]{}, err
	}
	return s.answer(c, &ledger.Row{State: state, Result: stored}, idempotency.Executed)
}

func (s *Runner[Req, Res, Tx]) answer(c *once.Checked, row *ledger.Row, o idempotency.Outcome) (res idempotency.Result[Res], err error) {
	switch {
	case row.State == ledger.Tombstone, row.State == ledger.RejectedTombstone, row.ResultExpired == 1:
		return res, &idempotency.ExpiredError{Rejected: row.State == ledger.RejectedTombstone || row.State == ledger.Rejected}
	case row.State == ledger.Parked:
		return res, &ParkedError{Step: row.Step, Reason: row.Reason}
	case row.State == ledger.Rejected:
		var rej idempotency.Rejection
		if err := s.transitions.unpack(c.ID, verdict(true), row.Result, &rej); err != nil {
			return res, err
		}
		return idempotency.Result[Res]{Outcome: o}, once.Settle(&rej)
	}
	if err := s.transitions.unpack(c.ID, verdict(false), row.Result, &res.Value); err != nil {
		return res, err
	}
	res.Outcome = o
	return res, nil
}

// pause returns the wait after the n-th failed attempt.
func (s *Runner[Req, Res, Tx]) pause(n int) time.Duration {
	d := min(float64(s.workflow.Backoff)*math.Pow(2, float64(n-1)), float64(s.workflow.MaxBackoff))
	return time.Duration(d * (0.5 + mathrand.Float64()))
}

const maxReason = 500

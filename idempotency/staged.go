package idempotency

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Defaults and bounds of Stages.
const (
	DefaultLease       = time.Minute
	MinLease           = 50 * time.Millisecond
	MaxLease           = 24 * time.Hour
	DefaultMaxAttempts = 10
	DefaultBackoff     = time.Second
	DefaultMaxBackoff  = 5 * time.Minute
)

// Stages describe an operation that calls the outside world, such as a refund
// at a payment provider. A transaction cannot hold such a call, so the operation
// goes in steps, and each is committed before the next begins.
type Stages[Tx, Req, Res any] struct {
	// Name is the operation's, as Op.Name: stable, at most 128 bytes. Required.
	Name string
	// Run is the operation. It does everything through steps ([Local], [Call])
	// and may be run again, by another process: steps that were done give their
	// stored results, so it must come to the same steps each time. A nil error
	// ends the operation as succeeded, [Reject] as rejected, any other lets it
	// be tried again later, up to MaxAttempts. Required.
	Run func(ctx context.Context, r *Run[Tx], request Req) (Res, error)

	// Lease is how long a worker has an operation, from the beginning of each
	// step: longer than the slowest call's timeout. Contexts of steps end a
	// tenth of it before, and after it anybody may go on. Default: a minute; 50 ms
	// to 24 h, exact to the microsecond, by the database's clock.
	Lease time.Duration
	// MaxAttempts is how often an operation is begun before it is parked as
	// unknown, crashes included. Default: 10.
	MaxAttempts int
	// Backoff is the pause after the first failed attempt; it doubles with each,
	// up to MaxBackoff, and has jitter. Defaults: a second, 5 minutes.
	Backoff, MaxBackoff time.Duration
	// KeyFormat is that of the provider's keys. It must not change while
	// operations are pending.
	KeyFormat KeyFormat
}

// Staged runs the operations of one kind. It is safe for concurrent use.
type Staged[Tx, Req, Res any] struct {
	rows   *stagedRows[Tx]
	stages Stages[Tx, Req, Res]
	holder string
}

// NewStaged checks a description. The records are the store's namespace's; its
// options Wait, MaxResult, Codec, Isolation, LockTimeout and Attempts hold, and
// requests and results of steps are stored as results are. BodyLife and KeyLife
// do not: staged operations are kept until an operator erases them.
//
// Errors: [holdfast.ErrInvalid].
func NewStaged[Tx, Req, Res any](s *Store[Tx], stages Stages[Tx, Req, Res]) (*Staged[Tx, Req, Res], error) {
	if s == nil {
		return nil, invalid("store", "is nil")
	}
	d := func(v *time.Duration, fallback time.Duration) {
		if *v == 0 {
			*v = fallback
		}
	}
	d(&stages.Lease, DefaultLease)
	d(&stages.Backoff, DefaultBackoff)
	d(&stages.MaxBackoff, max(DefaultMaxBackoff, stages.Backoff))
	if stages.KeyFormat.Length == 0 {
		stages.KeyFormat.Length = defaultProviderKey
	}
	if stages.MaxAttempts == 0 {
		stages.MaxAttempts = DefaultMaxAttempts
	}
	switch {
	case stages.Run == nil:
		return nil, invalid("Stages.Run", "is missing")
	case stages.MaxAttempts < 0:
		return nil, invalid("Stages.MaxAttempts", "is negative; 0 is the default")
	case stages.Backoff < 0 || stages.MaxBackoff < stages.Backoff:
		return nil, invalid("Stages.MaxBackoff", "is shorter than Backoff, or one of them is negative")
	}
	if err := firstOf(checkName("Stages.Name", stages.Name, false), firstOf(checkLease("Stages.Lease", stages.Lease), stages.KeyFormat.check())); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // only for people to look at
	return &Staged[Tx, Req, Res]{
		rows: newStagedRows(s), stages: stages,
		holder: cut(fmt.Sprintf("%s:%d", host, os.Getpid()), 255),
	}, nil
}

func checkLease(field string, d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return invalid(field, fmt.Sprintf("%v is not between %v and %v", d, MinLease, MaxLease))
	}
	return nil
}

// ProviderKey is the idempotency key that a step of an operation gives to its
// provider: the same for ever, whoever asks.
func (s *Staged[Tx, Req, Res]) ProviderKey(ref Ref, step string) string {
	ref.Name = s.stages.Name
	return s.stages.KeyFormat.derive(s.rows.store.hashOf(ref), step)
}

// Do runs the operation, or answers from its record; op.Name may be empty, and
// op.Request (unless a Fingerprint is given) is request.
//
// It works in the calling goroutine. A ctx that ends stops it between steps, never
// within an outside call: what was begun is brought to its end, or to the end of
// its lease. While another worker has the operation, Do waits as long as Op.Wait
// and Op.NoWait say.
//
// Errors: *[Rejection]; [ErrInProgress]; [ErrMismatch]; [ErrExpired] when it was
// erased; [ErrUnknown], as *[StepError] or *[ParkedError]; [ErrStale];
// [ErrNested]; [holdfast.ErrInvalid], [holdfast.ErrSchema]; ctx's; Run's own,
// after which the operation is tried again by the next call or [Staged.Complete].
func (s *Staged[Tx, Req, Res]) Do(ctx context.Context, op Op, request Req) (res Result[Res], err error) {
	ctx, span := tell(ctx, s.rows.store.access.Trace, "staged.do", s.stages.Name)
	defer func() { span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) }) }()
	c, err := s.check(op, request)
	if err != nil {
		return Result[Res]{}, err
	}
	inner, err := enter(ctx, s.rows.store, c.hash)
	if err != nil {
		return Result[Res]{}, err
	}
	start, pause := time.Now(), core.NewBackoff()
	for {
		row, err := s.visit(ctx, c, request)
		if err != nil {
			return Result[Res]{}, err
		}
		if err := c.prints.compare(row.printVersion, row.print); err != nil {
			return Result[Res]{}, err
		}
		switch {
		case row.mine:
			return s.drive(ctx, inner, c, row)
		case row.state != pending:
			return s.answer(c, row, Replayed)
		case row.left <= 0:
			if row, err = s.take(ctx, c, row); err != nil {
				return Result[Res]{}, err
			}
			if row.mine {
				return s.drive(ctx, inner, c, row)
			}
			continue
		}
		if waited := time.Since(start); op.NoWait || waited > c.wait {
			return Result[Res]{}, &InProgressError{Waited: waited}
		}
		if err := pause.Sleep(ctx); err != nil {
			return Result[Res]{}, err
		}
	}
}

func (s *Staged[Tx, Req, Res]) check(op Op, request Req) (*claim, error) {
	if op.Name != "" && op.Name != s.stages.Name {
		return nil, invalid("Op.Name", fmt.Sprintf("is %q, the operation is %q", op.Name, s.stages.Name))
	}
	op.Name = s.stages.Name
	if op.Request == nil && op.Fingerprint == nil && !op.NoFingerprint {
		op.Request = request
	}
	return s.rows.store.options.check(op)
}

// visit reads the operation, or claims it by inserting its row.
func (s *Staged[Tx, Req, Res]) visit(ctx context.Context, c *claim, request Req) (*stagedRow, error) {
	row, err := s.rows.look(ctx, s.rows.store.access.Pool, c.hash)
	if err != nil || row != nil {
		return row, err
	}
	stored, err := s.rows.pack(c.hash, request)
	if err != nil {
		return nil, err
	}
	owner, start := newOwner(), time.Now()
	err = s.rows.write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		o := &s.rows.store.options
		_, err := s.rows.sql.insert.Exec(ctx, q, c.hash[:], o.Namespace, c.op.Tenant, c.op.Name, []byte(c.op.Key),
			nullable(c.prints.own()), c.prints.version, stored, owner, s.holder, s.stages.Lease.Microseconds())
		if err != nil {
			return err
		}
		if row, err = s.rows.look(ctx, q, c.hash); err == nil && row == nil {
			err = &StateError{Action: "claim", State: State(0), Hint: "the row vanished while it was claimed; do not delete rows by hand"}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	row.own(owner, start.Add(s.stages.Lease))
	return row, nil
}

// take goes on with an operation whose time has come: it parks it or claims it.
// Afterwards the row is mine, or as somebody else left it.
func (s *Staged[Tx, Req, Res]) take(ctx context.Context, c *claim, seen *stagedRow) (*stagedRow, error) {
	reason := ""
	switch {
	case seen.mode == modePark && seen.step != "":
		reason = "the lease ended in an outside call"
	case seen.started >= s.stages.MaxAttempts:
		reason = fmt.Sprintf("%d attempts were started, %d finished", seen.started, seen.finished)
	}
	if reason != "" {
		row, err := s.rows.parkDue(ctx, c.hash, seen.token, reason)
		if err == nil && row.state == parked {
			s.parked(ctx, &ParkedError{})
		}
		return row, err
	}
	owner, start := newOwner(), time.Now()
	row, err := s.rows.claim(ctx, c.hash, owner, s.holder, s.stages.Lease, seen.token)
	if err != nil {
		return nil, err
	}
	row.own(owner, start.Add(s.stages.Lease))
	return row, nil
}

// drive runs the operation and settles it.
func (s *Staged[Tx, Req, Res]) drive(caller, inner context.Context, c *claim, row *stagedRow) (res Result[Res], err error) {
	inner, span := s.attempt(inner)
	defer func() {
		span.End(err, func(err error) string { return outcomeOf(res.Outcome, err) })
		s.parked(inner, err)
	}()
	return s.run(caller, inner, c, row)
}

func (s *Staged[Tx, Req, Res]) run(caller, inner context.Context, c *claim, row *stagedRow) (Result[Res], error) {
	ctx := context.WithoutCancel(inner)
	r := &Run[Tx]{
		rows: s.rows, caller: caller, hash: c.hash, owner: row.owner, token: row.token, restored: row.restored == 1,
		lease: s.stages.Lease, until: row.until, format: s.stages.KeyFormat, used: map[string]bool{},
	}
	var request Req
	var result Res
	err := s.rows.unpack(c.hash, row.request, &request)
	if err == nil {
		result, err = s.stages.Run(ctx, r, request)
	}
	var rej *Rejection
	switch {
	case r.over != nil: // parked, or lost
		return Result[Res]{}, r.over
	case r.open != nil: // whatever Run made of it
		err = r.open
	case err == nil:
		var out Result[Res]
		if out, err = s.finish(ctx, c, r, succeeded, result); err == nil {
			return out, nil
		}
	case errors.As(err, &rej):
		return s.finish(ctx, c, r, rejected, rej)
	}
	if r.over != nil {
		return Result[Res]{}, r.over
	}
	if row.started >= s.stages.MaxAttempts {
		settled, e := r.park(ctx, r.openStep(), cut(fmt.Sprintf("%d attempts were started; the last error: %v", row.started, err), maxReason))
		if settled == nil {
			return Result[Res]{}, e
		}
	}
	wait := s.pause(row.finished + 1)
	if r.stopped {
		wait = 0 // its caller went away, it did not fail
	}
	if e := s.rows.release(ctx, r, wait, cut(err.Error(), maxReason)); e != nil {
		err = errors.Join(err, e)
	}
	return Result[Res]{}, err
}

// finish ends the operation with its verdict.
func (s *Staged[Tx, Req, Res]) finish(ctx context.Context, c *claim, r *Run[Tx], state int, v any) (Result[Res], error) {
	stored, err := s.rows.pack(c.hash, v)
	if err == nil && state == succeeded {
		var back Res // what has no way back must not be committed
		err = s.rows.unpack(c.hash, stored, &back)
	}
	if err == nil {
		err = r.note(s.rows.finish(ctx, r, state, stored))
	}
	if err != nil {
		return Result[Res]{}, err
	}
	return s.answer(c, &stagedRow{state: state, result: stored}, Executed)
}

func (s *Staged[Tx, Req, Res]) answer(c *claim, row *stagedRow, o Outcome) (res Result[Res], err error) {
	switch row.state {
	case tombstone, rejectedTombstone:
		return res, &ExpiredError{Rejected: row.state == rejectedTombstone}
	case parked:
		return res, &ParkedError{Step: row.step, Reason: row.reason}
	case rejected:
		var rej Rejection
		if err := s.rows.unpack(c.hash, row.result, &rej); err != nil {
			return res, err
		}
		return Result[Res]{Outcome: o}, &rej
	}
	if err := s.rows.unpack(c.hash, row.result, &res.Value); err != nil {
		return res, err
	}
	res.Outcome = o
	return res, nil
}

// pause is the wait after the n-th attempt that failed.
func (s *Staged[Tx, Req, Res]) pause(n int) time.Duration {
	d := min(float64(s.stages.Backoff)*math.Pow(2, float64(n-1)), float64(s.stages.MaxBackoff))
	return time.Duration(d * (0.5 + mathrand.Float64()))
}

func newOwner() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, by its documentation
	return b
}

const maxReason = 500

// cut makes text fit a column of n bytes.
func cut(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}

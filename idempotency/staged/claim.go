package staged

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/internal/ledger"
	"github.com/holdfast-go/holdfast/idempotency/internal/once"
	"github.com/holdfast-go/holdfast/internal/core"
)

// visit reads the operation, or claims it by inserting its row.
func (s *Runner[Req, Res, Tx]) visit(ctx context.Context, c *once.Checked, request Req) (*ledger.Row, error) {
	row, err := s.transitions.Read(ctx, s.transitions.Access.Pool, c.ID)
	if err != nil || row != nil && row.KeyExpired == 0 {
		return row, err
	}
	stored, err := packed(s.transitions, c.ID, ofRequest, request, &request)
	if err != nil {
		return nil, err
	}
	attempt, start := once.RandomID(), time.Now()
	insert := s.inserting(ctx, c, stored, attempt, s.workflow.Lease, 1)
	forget := row != nil
	in := s.transitions.store
	if err := in.Admit(ctx, s.transitions.Access.Pool, c.ID.Owner, 0); err != nil {
		return nil, err
	}
	err = s.transitions.Write(ctx, func(ctx context.Context, _ Tx, q core.Querier) error {
		if forget {
			if _, err := s.transitions.Forget(ctx, q, c.ID); err != nil {
				return err
			}
		}
		if _, err := s.transitions.SQL.Insert.Exec(ctx, q, insert...); err != nil {
			return err
		}
		if row, err = s.transitions.Read(ctx, q, c.ID); err == nil && row == nil {
			err = &StateError{Action: "claim", State: idempotency.StateAbsent, Hint: "the row vanished while it was claimed; do not delete rows by hand"}
		}
		return err
	})
	if err != nil {
		if !errors.Is(err, idempotency.ErrUnknown) {
			in.GiveBack(c.ID.Owner)
		}
		return nil, err
	}
	if row.Own(attempt, start.Add(s.workflow.Lease)); !row.Mine {
		in.GiveBack(c.ID.Owner) // another call has inserted it
	}
	row.Fresh = row.Mine
	return row, nil
}

// inserting returns the arguments of Insert.
func (s *Runner[Req, Res, Tx]) inserting(ctx context.Context, c *once.Checked, stored, attempt []byte, lease time.Duration, started int) []any {
	return c.ID.Args(s.transitions.options.Namespace, s.workflow.Name, c.Key, once.Nullable(c.Fingerprint), c.FingerprintVersion,
		stored, attempt, s.holder, lease.Microseconds(), resultType[Res](), started, core.Program(), requestID(ctx))
}

// take parks or claims an operation that is due. Afterwards the row belongs to this worker, or
// another worker has changed it.
func (s *Runner[Req, Res, Tx]) take(ctx context.Context, c *once.Checked, seen *ledger.Row) (*ledger.Row, error) {
	reason := ""
	switch {
	case seen.Mode == ledger.ModePark && seen.Step != "":
		reason = "the lease ended in an outside call"
		if seen.Accepted == 1 {
			reason = "the deadline has passed by which the provider was to settle the call"
		}
	case seen.Started >= s.workflow.MaxAttempts:
		reason = fmt.Sprintf("%d attempts were started, %d finished", seen.Started, seen.Finished)
	}
	if reason != "" {
		row, err := s.transitions.parkDue(ctx, c.ID, seen, reason)
		if err == nil && row.State == ledger.Parked {
			s.parked(ctx, &ParkedError{})
		}
		return row, err
	}
	attempt, start := once.RandomID(), time.Now()
	row, err := s.transitions.claim(ctx, c.ID, attempt, s.holder, s.workflow.Lease, seen.Token, resultType[Res]())
	if err != nil {
		return nil, err
	}
	row.Own(attempt, start.Add(s.workflow.Lease))
	return row, nil
}

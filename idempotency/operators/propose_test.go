package operators_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/audit"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/operators"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

var olga = holdfast.Actor{By: "olga", Reason: "ticket 12"}

// parkedIn has an operation whose call got no answer.
func parkedIn(e *conformance.Env[*sql.Tx], s *idempotency.Store[*sql.Tx], key string) (staged.Ref, *staged.Runner[string, string, *sql.Tx]) {
	r, err := staged.New(s, staged.Workflow[string, string, *sql.Tx]{Name: "payout", Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
		return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank"}, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
	}})
	e.Check(err)
	if _, err = r.Do(e.Ctx, idempotency.Op{Owner: "anna", Key: key}, ""); !errors.Is(err, idempotency.ErrUnknown) {
		e.Fatal(err)
	}
	return staged.Ref{Owner: "anna", Name: "payout", Key: key}, r
}

// TestProposedForWhatWasSeen proposes a resolution, and has the operation go on and be unknown again before it is
// confirmed: it was about an earlier call, and does nothing.
func TestProposedForWhatWasSeen(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		e.ManyOwners()
		s, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
		e.Check(err)
		ops := operators.New(s)
		ref, runner := parkedIn(e, s, "1")
		shown, err := ops.Show(e.Ctx, ref)
		e.Check(err)
		notDone := operators.Resolution{Step: staged.StepNotDone}
		p, err := ops.Propose(e.Ctx, ref, notDone, olga)
		e.Check(err)
		e.Check(ops.Resolve(e.Ctx, ref, notDone, holdfast.Actor{By: "ben", Reason: "asked the bank"}))
		if _, err := runner.Do(e.Ctx, idempotency.Op{Owner: "anna", Key: "1"}, ""); !errors.Is(err, idempotency.ErrUnknown) {
			e.Fatal(err)
		}
		notDone.Token = shown.Token
		_, proposed := ops.Propose(e.Ctx, ref, notDone, olga)
		for what, err := range map[string]error{
			"confirmed": ops.Confirm(e.Ctx, p.ID, "cleo"), "resolved": ops.Resolve(e.Ctx, ref, notDone, olga), "proposed": proposed,
		} {
			if !errors.Is(err, staged.ErrState) {
				e.Errorf("%s: %v", what, err)
			}
		}
		now, err := ops.Show(e.Ctx, ref)
		e.Check(err)
		if now.State != idempotency.StateUnknown || now.Token == shown.Token {
			e.Errorf("%v, token %d, before %d", now.State, now.Token, shown.Token)
		}
		notDone.Token = now.Token
		e.Check(ops.Resolve(e.Ctx, ref, notDone, olga))

		// A record of Do, which is freed and unknown again.
		op := idempotency.Op{Owner: "anna", Name: "refund", Key: "2", NoFingerprint: true}
		ref = staged.Ref{Owner: "anna", Name: "refund", Key: "2"}
		unfinished := func() {
			_, err := idempotency.Do(e.Ctx, s, op, func(context.Context, *sql.Tx) (string, error) { return "", nil })
			e.Check(err)
			e.Must(`UPDATE holdfast_records SET state = 1, result = NULL, finished_at = NULL`)
		}
		unfinished()
		free := operators.Resolution{Free: true}
		p, err = ops.Propose(e.Ctx, ref, free, olga)
		e.Check(err)
		e.Check(ops.Resolve(e.Ctx, ref, free, olga))
		unfinished()
		if err := ops.Confirm(e.Ctx, p.ID, "cleo"); !errors.Is(err, staged.ErrState) {
			e.Errorf("freed: %v", err)
		}
		if now, err = ops.Show(e.Ctx, ref); err != nil || now.State != idempotency.StateUnknown {
			e.Errorf("%+v, %v", now, err)
		}
	})
}

// TestFourEyes has one person propose, and another one confirm.
func TestFourEyes(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		e.ManyOwners()
		s, err := idempotency.New(e.Ctx, access.WithOwners(e.DB, core.ManyOwners))
		e.Check(err)
		ops := operators.New(s)
		ref, runner := parkedIn(e, s, "1")
		refuse := func(id []byte, by string, want error, opts ...operators.ConfirmOptions) {
			e.Helper()
			if err := ops.Confirm(e.Ctx, id, by, opts...); !errors.Is(err, want) {
				e.Errorf("%s: %v, want %v", by, err, want)
			}
			if op, err := ops.Show(e.Ctx, ref); err != nil || op.State != idempotency.StateUnknown {
				e.Errorf("%+v, %v", op, err)
			}
		}
		p, err := ops.Propose(e.Ctx, ref, operators.Resolution{Step: staged.StepDone, StepResult: "bank 7"}, olga)
		e.Check(err)
		if p.By != "olga" || p.Reason != "ticket 12" || *p.Operation != ref || p.Action != "resolve step as done" || p.ExpiresAt.Sub(p.ProposedAt).Round(time.Second) != 24*time.Hour {
			e.Errorf("%+v", p)
		}
		list, err := core.First(99, ops.Proposals(e.Ctx))
		if err != nil || len(list) != 1 || !bytes.Equal(list[0].ID, p.ID) {
			e.Errorf("%+v, %v", list, err)
		}
		for _, by := range []string{"olga", " Olga "} {
			refuse(p.ID, by, operators.ErrSamePerson)
		}
		refuse(p.ID, "ben", operators.ErrSamePerson, operators.ConfirmOptions{OtherAccount: true}) // both are the test's account
		refuse(p.ID, "", holdfast.ErrInvalid)
		refuse([]byte("another proposal"), "ben", operators.ErrNoProposal)
		refuse([]byte("x"), "ben", operators.ErrNoProposal)
		e.Check(ops.Confirm(e.Ctx, p.ID, "ben"))
		if r, err := runner.Do(e.Ctx, idempotency.Op{Owner: "anna", Key: "1"}, ""); err != nil || r.Value != "bank 7" {
			e.Errorf("%+v, %v", r, err)
		}
		if err := ops.Confirm(e.Ctx, p.ID, "ben"); !errors.Is(err, operators.ErrNoProposal) {
			e.Error(err)
		}

		// What has expired confirms nothing, and goes with the next proposal.
		ref, _ = parkedIn(e, s, "2")
		p, err = ops.Propose(e.Ctx, ref, operators.Resolution{Reject: true, Rejection: &idempotency.Rejection{Code: "no"}}, olga, operators.ProposeOptions{TTL: time.Hour})
		e.Check(err)
		e.Must(`UPDATE holdfast_proposals SET expires_at = 1`)
		refuse(p.ID, "ben", operators.ErrNoProposal)
		if list, err := core.First(99, ops.Proposals(e.Ctx)); err != nil || len(list) != 0 {
			e.Errorf("%+v, %v", list, err)
		}
		p, err = ops.Propose(e.Ctx, ref, operators.Resolution{Reject: true, Rejection: &idempotency.Rejection{Code: "no"}}, olga)
		e.Check(err)
		if n := e.Int(`SELECT COUNT(*) FROM holdfast_proposals`); n != 1 {
			e.Errorf("%d rows", n)
		}
		// Two who confirm at once: one does.
		var done atomic.Int32
		var wg sync.WaitGroup
		for _, by := range []string{"ben", "cleo", "dan"} {
			wg.Go(func() {
				switch err := ops.Confirm(e.Ctx, p.ID, by); {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, operators.ErrNoProposal) && !errors.Is(err, staged.ErrState) && !errors.Is(err, holdfast.ErrRetry):
					e.Error(err)
				}
			})
		}
		wg.Wait()
		if done.Load() != 1 {
			e.Errorf("%d confirmed", done.Load())
		}

		// Locks, by their tokens.
		locks := e.LockerOn(e.DB, sqllock.Options{Holder: "worker", TTL: time.Hour}).For("anna")
		lease, err := locks.Acquire(e.Ctx, "k")
		e.Check(err)
		fair, err := fairlock.New(locks).Acquire(e.Ctx, "k")
		e.Check(err)
		for kind, token := range map[string]int64{"lease": lease.Token(), "fair": fair.Token()} {
			wrong, err := ops.ProposeRelease(e.Ctx, operators.Lock{Kind: kind, Owner: "anna", Key: "k", Token: 1}, olga)
			e.Check(err)
			if err := ops.Confirm(e.Ctx, wrong.ID, "ben"); !errors.Is(err, operators.ErrNotHeld) {
				e.Error(err)
			}
			p, err := ops.ProposeRelease(e.Ctx, operators.Lock{Kind: kind, Owner: "anna", Key: "k", Token: token}, olga)
			e.Check(err)
			if err := ops.Confirm(e.Ctx, p.ID, "olga"); !errors.Is(err, operators.ErrSamePerson) {
				e.Error(err)
			}
			e.Check(ops.Confirm(e.Ctx, p.ID, "ben"))
		}
		confirmed := 0
		for r, err := range audit.List(e.Ctx, e.DB) {
			e.Check(err)
			if strings.HasPrefix(r.Action, "propose: ") != (r.ConfirmedBy == "") || r.By != "olga" || r.ConfirmedBy == "olga" {
				e.Errorf("%+v", r)
			}
			if r.ConfirmedBy != "" {
				confirmed++
			}
		}
		if report, err := audit.Verify(e.Ctx, e.DB); err != nil || confirmed != 4 || report.Rows != 11 {
			e.Errorf("%d of %+v, %v", confirmed, report, err)
		}
		for _, l := range []operators.Lock{{Kind: "row", Key: "k", Token: 1}, {Kind: "lease", Token: 1}, {Kind: "lease", Key: "k"}} {
			if _, err := ops.ProposeRelease(e.Ctx, l, olga); !errors.Is(err, holdfast.ErrInvalid) {
				e.Errorf("%+v: %v", l, err)
			}
		}
		if _, err := ops.Propose(e.Ctx, staged.Ref{Owner: "anna", Name: "payout", Key: "none"}, operators.Resolution{Resume: true}, olga); !errors.Is(err, staged.ErrNotFound) {
			e.Error(err)
		}
	})
}

func TestMain(m *testing.M) { dbtest.VerifyNoLeaks(m) }

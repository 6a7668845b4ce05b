package tracetest

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/businessrow"
	"github.com/holdfast-go/holdfast/idempotency/idemhttp"
	"github.com/holdfast-go/holdfast/idempotency/inbox"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

func op(key string) idempotency.Op {
	return idempotency.Op{Owner: Secret + "-owner", Name: "refund", Key: Secret + key, Request: map[string]string{"iban": Secret}}
}

func (w *world) operations() {
	pay := func(context.Context, *sql.Tx) (string, error) { return Secret + "-result", nil }
	do := func(o idempotency.Op, f func(context.Context, *sql.Tx) (string, error), want error) {
		w.Helper()
		_, err := idempotency.Do(w.ctx, w.ops, o, f)
		w.want(err, want)
	}
	do(op("a"), pay, nil)
	do(op("a"), pay, nil)
	var rejection *idempotency.Rejection
	for range 2 {
		_, err := idempotency.Do(w.ctx, w.ops, op("rejected"), func(context.Context, *sql.Tx) (string, error) {
			return "", idempotency.Reject(Secret, Secret)
		})
		if !errors.As(err, &rejection) {
			w.Fatal(err)
		}
	}
	w.kit.Mismatch(w.ops, op("mismatch"))
	do(op("mismatch"), pay, idempotency.ErrMismatch)
	for _, c := range []struct {
		key, confirm string
		want         error
	}{{"similar", "", nil}, {"similar again", idempotency.ConfirmAny, nil}, {"similar twice", "", idempotency.ErrSimilar}} {
		o := op(c.key)
		o.Similar = &idempotency.Similar{By: []string{Secret}, Window: time.Hour, Confirm: c.confirm}
		do(o, pay, c.want)
	}
	w.kit.Expire(w.ops, op("expired"), Secret)
	do(op("expired"), pay, idempotency.ErrExpired)
	end := w.kit.InProgress(w.ops, op("busy"))
	busy := op("busy")
	busy.Wait = 100 * time.Millisecond
	do(busy, pay, idempotency.ErrInProgress)
	end()
	w.kit.LoseCommit(true)
	do(op("unknown"), pay, idempotency.ErrUnknown)
	do(op("unknown"), pay, nil)
	do(op("unfinished"), pay, nil)
	_, err := w.kit.Pool.ExecContext(w.ctx, `UPDATE holdfast_records SET state = 1, result = NULL, finished_at = NULL WHERE op_key = ?`, []byte(op("unfinished").Key))
	w.want(err, nil)
	do(op("unfinished"), pay, idempotency.ErrUnknown)
	failure := errors.New(Secret)
	do(op("failed"), func(context.Context, *sql.Tx) (string, error) { return "", failure }, failure)
	do(idempotency.Op{Name: "refund", Key: Secret}, pay, holdfast.ErrInvalid) // no owner
	_, err = idempotency.Lookup[string](w.ctx, w.ops, op("a"))
	w.want(err, nil)
	_, err = w.ops.Void(w.ctx, op("a"), Secret)
	w.want(err, idempotency.ErrTooLate)
	_, err = w.ops.Void(w.ctx, op("voided"), Secret)
	w.want(err, nil)
	w.in(func(tx *sql.Tx) {
		_, err := idempotency.DoTx(w.ctx, w.ops, tx, op("tx"), pay)
		w.want(err, nil)
	})
	w.want(w.kit.DB.InTx(w.ctx, func(context.Context, *sql.Tx) error { return nil }), nil)
	in, err := inbox.New(w.ops, "ledger")
	w.want(err, nil)
	_, err = in.Process(w.ctx, inbox.Message{Owner: Secret, ID: Secret, Body: []byte(Secret)}, func(context.Context, *sql.Tx) error { return nil })
	w.want(err, nil)
	once, err := idemhttp.New(w.ops, idemhttp.Operation("refund"), idemhttp.Options{
		Owner: func(*http.Request) (string, error) { return Secret, nil }, Unkeyed: idemhttp.ReportUnkeyed,
	})
	w.want(err, nil)
	request := httptest.NewRequestWithContext(w.ctx, http.MethodPost, "/"+Secret, strings.NewReader(Secret))
	once.Handler(func(http.ResponseWriter, *http.Request, *sql.Tx) error { return nil }).ServeHTTP(httptest.NewRecorder(), request)
}

// records uses business rows as records.
func (w *world) records() {
	table, err := businessrow.New[refund](w.ctx, w.kit.DB, holdfast.TableSpec{Table: "refunds", Key: []string{"refund_no"}}, businessrow.Options{Compare: []string{"cents"}})
	w.want(err, nil)
	row := refund{Secret + "-1", 1250}
	for range 2 {
		_, err = table.Do(w.ctx, row, func(context.Context, *sql.Tx) error { return nil })
		w.want(err, nil)
	}
	w.in(func(tx *sql.Tx) {
		_, err := table.ClaimTx(w.ctx, tx, refund{row.RefundNo, 99})
		w.want(err, idempotency.ErrMismatch)
	})
	w.in(func(tx *sql.Tx) {
		_, err := table.ClaimAllTx(w.ctx, tx, []refund{row, {Secret + "-2", 1}})
		w.want(err, nil)
	})
}

// staged pays twice at a bank that loses its answers.
func (w *world) staged() {
	answers := []error{nil, errors.New(Secret), nil}
	s, err := staged.New(w.ops, staged.Workflow[string, string, *sql.Tx]{
		Name: "payout",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank"}, func(context.Context, string) (string, error) {
				answer := answers[0]
				answers = answers[1:]
				return Secret, answer
			})
		},
	})
	w.want(err, nil)
	o := idempotency.Op{Owner: Secret, Key: Secret}
	for range 2 { // the second one is a replay
		_, err = s.Do(w.ctx, o, Secret)
		w.want(err, nil)
	}
	o.Key += " parked"
	_, err = s.Do(w.ctx, o, Secret)
	w.want(err, idempotency.ErrUnknown)
	w.in(func(tx *sql.Tx) {
		started := o
		started.Key += " started"
		_, err := s.StartTx(w.ctx, tx, started, Secret)
		w.want(err, nil)
	})
	_, err = s.Lookup(w.ctx, idempotency.Op{Owner: Secret, Key: o.Key})
	w.want(err, nil)
	_, err = s.Cancel(w.ctx, idempotency.Op{Owner: Secret, Key: o.Key}, Secret)
	w.want(err, idempotency.ErrTooLate)
	_, err = s.Cancel(w.ctx, idempotency.Op{Owner: Secret, Key: o.Key + " cancelled"}, Secret)
	w.want(err, nil)
	event := staged.ProviderEvent{
		ID: Secret, Kind: "paid", Body: []byte(Secret), Ref: staged.Ref{Owner: Secret, Name: "payout", Key: o.Key},
		Outcome: staged.StepDone, Step: "bank", Result: Secret,
	}
	for range 2 {
		_, err = staged.HandleEvent(w.ctx, w.ops, event, nil)
		w.want(err, nil)
	}
	done, err := s.Complete(w.ctx)
	w.want(err, nil)
	if done.Succeeded != 2 {
		w.Fatalf("%+v", done)
	}
	// A provider that honours keys gives no answer, then accepts.
	answers = []error{errors.New(Secret), staged.Accepted(Secret, time.Hour)}
	later, err := staged.New(w.ops, staged.Workflow[string, string, *sql.Tx]{
		Name: "payout", Backoff: time.Millisecond,
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ string) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "bank", OnLeaseEnd: staged.TakeOver}, func(context.Context, string) (string, error) {
				answer := answers[0]
				answers = answers[1:]
				return Secret, answer
			})
		},
	})
	w.want(err, nil)
	o.Key += " later"
	_, err = later.Do(w.ctx, o, Secret)
	w.want(err, idempotency.ErrUnknown)
	_, err = later.Do(w.ctx, o, Secret)
	w.want(err, idempotency.ErrInProgress)
}

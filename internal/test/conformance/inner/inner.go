// Package inner contains the suite of functions that fail with the outcome of an inner operation: no
// package takes it for its own outcome.
package inner

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
)

// outcome is the error of a call in a function.
type outcome struct {
	name string
	err  error
	is   error // nil for a rejection, and for a result
}

// in reports whether err says it.
func (o outcome) in(err error) bool {
	var rej *idempotency.Rejection
	var result *idempotency.ResultError
	switch {
	case o.is != nil:
		return errors.Is(err, o.is)
	case o.name == unreadable:
		return errors.As(err, &result)
	}
	return errors.As(err, &rej)
}

const unreadable = "unreadable"

// outcomes returns the outcomes that an inner operation may have.
func outcomes[Tx any](e *conformance.Env[Tx]) []outcome {
	e.Helper()
	s := e.Store(idempotency.Options{})
	release := e.HoldKey("held")
	op := conformance.Op("held")
	op.Wait = holdfast.NoWait
	_, busy := e.Do(s, op)
	release()
	op = conformance.Op("held")
	op.Request = "another"
	_, mismatch := e.Do(s, op)
	e.Expire("result_expires_at", "held")
	_, expired := e.Do(s, conformance.Op("held"))
	_, rejected := idempotency.Do(e.Ctx, s, conformance.Op("refused"), func(context.Context, Tx) (int, error) { return 0, idempotency.Reject("no", "never") })
	list := []outcome{
		{"in progress", busy, idempotency.ErrInProgress},
		{"mismatch", mismatch, idempotency.ErrMismatch},
		{"expired", expired, idempotency.ErrExpired},
		{"rejected", rejected, nil},
		{"unknown", &holdfast.UnknownError{Err: errors.New("no answer to COMMIT")}, idempotency.ErrUnknown},
		{"unfinished", &idempotency.UnfinishedError{}, idempotency.ErrUnknown},
		{"parked", &staged.ParkedError{Step: "pay", Reason: "no answer"}, idempotency.ErrUnknown},
		{"settling", &staged.AcceptedError{Step: "pay"}, idempotency.ErrInProgress},
		{"stale", &staged.StaleError{}, staged.ErrStale},
		{"too many", &idempotency.TooManyError{}, idempotency.ErrTooMany},
		{"similar", &idempotency.SimilarError{}, idempotency.ErrSimilar},
		{"too late", &idempotency.TooLateError{}, idempotency.ErrTooLate},
		{"open step", &staged.StepError{Step: "pay", Err: errors.New("no answer")}, idempotency.ErrUnknown},
		{unreadable, &idempotency.ResultError{Err: errors.New("another type")}, nil},
	}
	for _, o := range list {
		if !o.in(o.err) {
			e.Fatalf("%s: %v", o.name, o.err)
		}
	}
	return list
}

// Suite runs each call with each outcome, through one handle.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	all := calls[Tx]()
	for _, what := range Names() {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, h, func(e *conformance.Env[Tx]) {
				for _, o := range outcomes(e) {
					taken(e, o, all[what])
				}
			})
		})
	}
}

// taken fails if the call takes o for its own outcome: it rolls back, says so, and leaves its key free.
func taken[Tx any](e *conformance.Env[Tx], o outcome, c call[Tx]) {
	e.Helper()
	err := c.run(e, o.name, fmt.Errorf("within: %w", o.err))
	var inner *idempotency.InnerError
	switch {
	case err == nil:
		e.Errorf("%s: no error", o.name)
	case c.passes && !o.in(err):
		e.Errorf("%s: %v is not the error of the function", o.name, err)
	case !c.passes && (o.in(err) || !errors.As(err, &inner) || !o.in(inner.Err)):
		e.Errorf("%s: %v is taken for the call's own", o.name, err)
	}
	if n := e.Effects(o.name); n != 0 {
		e.Errorf("%s: %d effects of the function that failed", o.name, n)
	}
	if err := c.run(e, o.name, nil); err != nil {
		e.Errorf("%s: the call after it: %v", o.name, err)
	}
	e.WantOnce(o.name)
}

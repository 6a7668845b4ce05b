package limits_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/limits"
)

// between opens limits that call what is stored in do after a statement, once.
func between(t *testing.T, statement string, f func(e *conformance.Env[*sql.Tx], l *limits.Limits[*sql.Tx], do *atomic.Pointer[func()])) {
	t.Helper()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		var do atomic.Pointer[func()]
		pool := e.Open(e.DSN, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if s.Name == statement {
				if f := do.Swap(nil); f != nil {
					(*f)()
				}
			}
		}}})
		l, err := limits.New(e.Ctx, pool.DB, "refunds")
		e.Check(err)
		_, err = l.Set(e.Ctx, "a", 100)
		e.Check(err)
		f(e, l, &do)
	})
}

// TestExpiresBeforeTheCapture lets the time pass after the capture has read the reservation, and before it
// writes.
func TestExpiresBeforeTheCapture(t *testing.T) {
	t.Parallel()
	between(t, "limits.locked", func(e *conformance.Env[*sql.Tx], l *limits.Limits[*sql.Tx], do *atomic.Pointer[func()]) {
		_, err := l.Reserve(e.Ctx, limits.Request{Key: "a", ID: "1", Amount: 60, Timeout: 200 * time.Millisecond})
		e.Check(err)
		due := e.Int(`SELECT due_at FROM holdfast_limit_entries`)
		wait := func() { e.Eventually("the time passes", func() bool { return e.Now() > due }) }
		do.Store(&wait)
		if _, err := l.Capture(e.Ctx, limits.Request{Key: "a", ID: "1"}); !errors.Is(err, limits.ErrExpired) {
			e.Errorf("captured after the expiry: %v", err)
		}
		if s, err := l.Get(e.Ctx, "a"); err != nil || s.Captured != 0 || s.Reserved != 0 {
			e.Errorf("%+v, %v", s, err)
		}
		if n := e.Int(`SELECT reserved FROM holdfast_limits`); n != 0 {
			e.Errorf("%d reserved: the capture has not closed it", n)
		}
	})
}

// TestReservedBeforeTheErasure reserves, and sets another limit, after an erasure has found a limit without
// reservations.
func TestReservedBeforeTheErasure(t *testing.T) {
	t.Parallel()
	between(t, "limits.unused", func(e *conformance.Env[*sql.Tx], l *limits.Limits[*sql.Tx], do *atomic.Pointer[func()]) {
		other, err := limits.New(e.Ctx, e.DB, "refunds")
		e.Check(err)
		reserve := func() {
			_, err := other.Reserve(e.Ctx, limits.Request{Key: "a", ID: "1", Amount: 60})
			e.Check(err)
			_, err = other.Set(e.Ctx, "new", 50)
			e.Check(err)
		}
		do.Store(&reserve)
		if n, err := l.Erase(e.Ctx, holdfast.Actor{By: "olga", Reason: "asked"}); n != 0 || err != nil {
			e.Errorf("%d rows, %v", n, err)
		}
		if s, err := l.Get(e.Ctx, "a"); err != nil || s.Reserved != 60 {
			e.Errorf("%+v, %v", s, err)
		}
		if s, err := l.Get(e.Ctx, "new"); err != nil || s.Limit != 50 {
			e.Errorf("a limit that was set after the search: %+v, %v", s, err)
		}
	})
}

// TestTakenDuringTheErasure takes an amount after an erasure has found the entries that have ended.
func TestTakenDuringTheErasure(t *testing.T) {
	t.Parallel()
	between(t, "limits.old", func(e *conformance.Env[*sql.Tx], l *limits.Limits[*sql.Tx], do *atomic.Pointer[func()]) {
		other, err := limits.New(e.Ctx, e.DB, "refunds")
		e.Check(err)
		take := func(id string) {
			_, err := other.Take(e.Ctx, limits.Request{Key: "a", ID: id, Amount: 1})
			e.Check(err)
		}
		take("1")
		take("2")
		late := func() { take("3") }
		do.Store(&late)
		if n, err := l.Erase(e.Ctx, holdfast.Actor{By: "olga", Reason: "asked"}); n != 3 || err != nil { // two, and the limit
			e.Errorf("%d rows, %v", n, err)
		}
		if got, err := l.Entry(e.Ctx, "3"); err != nil || got.Captured != 1 {
			e.Errorf("what was taken after the search: %+v, %v", got, err)
		}
	})
}

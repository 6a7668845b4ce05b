package operations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock"
)

func (e *env[Tx]) leaseOn(l *sqllock.Locker[Tx], s *idempotency.Store[Tx], op idempotency.Op) *sqllock.Lease {
	e.Helper()
	key, err := s.LeaseKey(op)
	if err != nil {
		e.Fatal(err)
	}
	return e.MustAcquire(l.For(op.Owner), key)
}

// leaseBecomesRecord lets the holder of a lease create the record, in a transaction of Holdfast
// and in the caller's transaction. Every later call replays that record.
func leaseBecomesRecord[Tx any](e *env[Tx]) {
	l, s := e.LockerWith(sqllock.Options{}), e.Store(idempotency.Options{})
	for _, joined := range []bool{false, true} {
		op := conformance.Op("a")
		if joined {
			op = conformance.Op(strings.Repeat("/", idempotency.MaxKey)) // too long for a lock key
		}
		lease := e.leaseOn(l, s, op)
		with := s.WithLease(l, lease.Term())
		for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			var r idempotency.Result[string]
			var err error
			if joined {
				tx := e.BeginTx(sql.LevelDefault)
				r, err = e.DoTx(with, tx, op)
				e.EndTx(tx, true)
			} else {
				r, err = e.Do(with, op)
			}
			if err != nil || r.Outcome != outcome {
				e.Errorf("%v, %v, want %v", r, err, outcome)
			}
		}
		e.MustRelease(lease)
		if r, err := e.Do(e.Store(idempotency.Options{}), op); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("without the lease: %v, %v", r, err)
		}
		if r, err := e.Do(with, op); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("after the lease: %v, %v", r, err)
		}
		e.WantOnce(op.Key)
	}
	// A final rejection is stored as a record too.
	lease := e.leaseOn(l, s, conformance.Op("no"))
	_, err := idempotency.Do(e.Ctx, s.WithLease(l, lease.Term()), conformance.Op("no"), func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(e.Effect(ctx, tx, "no"), idempotency.Reject("no", "never"))
	})
	if rej := (*idempotency.Rejection)(nil); !errors.As(err, &rej) || e.Effects("no") != 0 {
		e.Errorf("%v, %d effects", err, e.Effects("no"))
	}
	e.MustRelease(lease)
}

// lostLeaseMakesNone checks that a holder which lost its lease without noticing creates no
// record and no effect. Without the guard it would create both.
func lostLeaseMakesNone[Tx any](e *env[Tx]) {
	l, s := e.LockerWith(sqllock.Options{}), e.Store(idempotency.Options{})
	op := conformance.Op("a")
	key, _ := s.LeaseKey(op)
	lease := e.leaseOn(l, s, op)
	with := s.WithLease(l, lease.Term())
	if took, err := e.LockerWith(sqllock.Options{}).For(conformance.Op("").Owner).ForceRelease(e.Ctx, key, 0, holdfast.Actor{By: "test", Reason: "a test"}); err != nil || !took {
		e.Fatalf("%v, %v", took, err)
	}
	none := func(what string, want error, call func() error) {
		e.Helper()
		if err := call(); !errors.Is(err, want) {
			e.Errorf("%s: %v, want %v", what, err, want)
		}
		if n := e.Effects("a") + e.Int(`SELECT COUNT(*) FROM holdfast_records`); n != 0 {
			e.Errorf("%s: %d rows stand", what, n)
		}
	}
	none("Do", sqllock.ErrLost, func() error { _, err := e.Do(with, op); return err })
	none("DoTx", sqllock.ErrLost, func() error {
		tx := e.BeginTx(sql.LevelDefault)
		_, err := e.DoTx(with, tx, op)
		e.WantRolledBack(tx)
		return err
	})
	// The next holder has the lease. A lease on another operation does not count for this one.
	next := e.leaseOn(l, s, op)
	none("another's key", holdfast.ErrInvalid, func() error { _, err := e.Do(s.WithLease(l, next.Term()), conformance.Op("b")); return err })
	none("another owner's", holdfast.ErrInvalid, func() error {
		_, err := e.Do(s.WithLease(l, l.For("another").Term(next.Term().Key(), next.Token())), op)
		return err
	})
	none("no locker", holdfast.ErrInvalid, func() error { _, err := e.Do(s.WithLease(nil, next.Term()), op); return err })
	none("no term", holdfast.ErrInvalid, func() error { _, err := e.Do(s.WithLease(l, sqllock.Term{}), op); return err })
	if r, err := e.Do(s.WithLease(l, next.Term()), op); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("the next holder: %v, %v", r, err)
	}
	// The operation is done, and the former holder gets the replay, also where new keys only are expected.
	for i := range 8 {
		if _, err := e.Do(s, conformance.Op(fmt.Sprintf("new %d", i))); err != nil {
			e.Error(err)
		}
	}
	if _, err := with.Void(e.Ctx, op, "too late"); !errors.Is(err, idempotency.ErrTooLate) {
		e.Errorf("the former holder's Void: %v, want ErrTooLate", err)
	}
	for i := range 8 {
		if _, err := e.Do(s, conformance.Op(fmt.Sprintf("newer %d", i))); err != nil {
			e.Error(err)
		}
	}
	if r, err := e.Do(with, op); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("the former holder: %v, %v", r, err)
	}
	e.MustRelease(next)
	e.WantOnce("a")

	// While the transaction creates the record, the guard keeps everyone else from the lease.
	lease = e.leaseOn(l, s, conformance.Op("c"))
	_, err := idempotency.Do(e.Ctx, s.WithLease(l, lease.Term()), conformance.Op("c"), func(ctx context.Context, tx Tx) (string, error) {
		bounded, cancel := context.WithTimeout(e.Ctx, 500*time.Millisecond)
		defer cancel()
		key, _ := s.LeaseKey(conformance.Op("c"))
		if took, err := e.LockerWith(sqllock.Options{}).For(conformance.Op("").Owner).ForceRelease(bounded, key, 0, holdfast.Actor{By: "test", Reason: "too late"}); took || err == nil {
			e.Errorf("the lease was taken from under its guard: %v", err)
		}
		return "done", e.Effect(ctx, tx, "c")
	})
	if err != nil {
		e.Error(err)
	}
	_ = lease.Release(e.Ctx) // MySQL may have finished the interrupted statement
	e.WantOnce("c")

	// The naive form has no guard: a holder that lost its lease still creates the record.
	lease = e.leaseOn(l, s, conformance.Op("naive"))
	key, _ = s.LeaseKey(conformance.Op("naive"))
	if took, err := e.LockerWith(sqllock.Options{}).For(conformance.Op("").Owner).ForceRelease(e.Ctx, key, 0, holdfast.Actor{By: "test", Reason: "a test"}); err != nil || !took {
		e.Fatalf("%v, %v", took, err)
	}
	if r, err := e.Do(s, conformance.Op("naive")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("%v, %v", r, err)
	}
	_ = lease.Release(e.Ctx)
}

package conformance

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

func (e *Env[Tx]) leaseOn(l *sqllock.Locker[Tx], s *idempotency.Store[Tx], op idempotency.Op) *sqllock.Lease {
	e.Helper()
	key, err := s.LeaseKey(op)
	if err != nil {
		e.Fatal(err)
	}
	return e.mustAcquire(l, key)
}

// leaseBecomesRecord: the holder of a lease makes the record, in a transaction
// of Holdfast's and in its own; from then on the record answers everybody.
func leaseBecomesRecord[Tx any](e *Env[Tx]) {
	l, s := e.leaser(sqllock.Options{}), e.Store(idempotency.Options{})
	for _, joined := range []bool{false, true} {
		op := Op("a")
		if joined {
			op = Op(strings.Repeat("/", idempotency.MaxKey)) // too long for a lock's key
		}
		lease := e.leaseOn(l, s, op)
		with := s.WithLease(l, lease.Term())
		for _, outcome := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			var r idempotency.Result[string]
			var err error
			if joined {
				tx := e.begin(sql.LevelDefault)
				r, err = e.doTx(with, tx, op)
				e.end(tx, true)
			} else {
				r, err = e.Do(with, op)
			}
			if err != nil || r.Outcome != outcome {
				e.Errorf("%v, %v, want %v", r, err, outcome)
			}
		}
		e.mustRelease(lease)
		if r, err := e.Do(e.Store(idempotency.Options{}), op); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("without the lease: %v, %v", r, err)
		}
		if r, err := e.Do(with, op); err != nil || r.Outcome != idempotency.Replayed {
			e.Errorf("after the lease: %v, %v", r, err)
		}
		e.WantOnce(op.Key)
	}
	// A final rejection is a record too.
	lease := e.leaseOn(l, s, Op("no"))
	_, err := idempotency.Do(e.Ctx, s.WithLease(l, lease.Term()), Op("no"), func(ctx context.Context, tx Tx) (string, error) {
		return "", errors.Join(e.Effect(ctx, tx, "no"), idempotency.Reject("no", "never"))
	})
	if rej := (*idempotency.Rejection)(nil); !errors.As(err, &rej) || e.Effects("no") != 0 {
		e.Errorf("%v, %d effects", err, e.Effects("no"))
	}
	e.mustRelease(lease)
}

// lostLeaseMakesNone: a holder that lost its lease and does not know it makes
// no record and no effect; without the guard it would.
func lostLeaseMakesNone[Tx any](e *Env[Tx]) {
	l, s := e.leaser(sqllock.Options{}), e.Store(idempotency.Options{})
	op := Op("a")
	key, _ := s.LeaseKey(op)
	lease := e.leaseOn(l, s, op)
	with := s.WithLease(l, lease.Term())
	if took, err := e.leaser(sqllock.Options{}).ForceRelease(e.Ctx, key, 0, "a test"); err != nil || !took {
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
		tx := e.begin(sql.LevelDefault)
		_, err := e.doTx(with, tx, op)
		e.gone(tx)
		return err
	})
	// The next holder's turn; a lease on another operation is none on this one.
	next := e.leaseOn(l, s, op)
	none("another's key", holdfast.ErrInvalid, func() error { _, err := e.Do(s.WithLease(l, next.Term()), Op("b")); return err })
	none("no locker", holdfast.ErrInvalid, func() error { _, err := e.Do(s.WithLease(nil, next.Term()), op); return err })
	none("no term", holdfast.ErrInvalid, func() error { _, err := e.Do(s.WithLease(l, sqllock.Term{}), op); return err })
	if r, err := e.Do(s.WithLease(l, next.Term()), op); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("the next holder: %v, %v", r, err)
	}
	// It was done, and that is what the former holder is told.
	if r, err := e.Do(with, op); err != nil || r.Outcome != idempotency.Replayed {
		e.Errorf("the former holder: %v, %v", r, err)
	}
	e.mustRelease(next)
	e.WantOnce("a")

	// While the record is made nobody is granted the lease: the guard holds it.
	lease = e.leaseOn(l, s, Op("c"))
	_, err := idempotency.Do(e.Ctx, s.WithLease(l, lease.Term()), Op("c"), func(ctx context.Context, tx Tx) (string, error) {
		bounded, cancel := context.WithTimeout(e.Ctx, 500*time.Millisecond)
		defer cancel()
		key, _ := s.LeaseKey(Op("c"))
		if took, err := e.leaser(sqllock.Options{}).ForceRelease(bounded, key, 0, "too late"); took || err == nil {
			e.Errorf("the lease was taken from under its guard: %v", err)
		}
		return "done", e.Effect(ctx, tx, "c")
	})
	if err != nil {
		e.Error(err)
	}
	_ = lease.Release(e.Ctx) // MySQL may have finished the statement that was broken off
	e.WantOnce("c")

	// The naive form, without the guard: whoever lost the lease makes the record.
	lease = e.leaseOn(l, s, Op("naive"))
	key, _ = s.LeaseKey(Op("naive"))
	if took, err := e.leaser(sqllock.Options{}).ForceRelease(e.Ctx, key, 0, "a test"); err != nil || !took {
		e.Fatalf("%v, %v", took, err)
	}
	if r, err := e.Do(s, Op("naive")); err != nil || r.Outcome != idempotency.Executed {
		e.Errorf("%v, %v", r, err)
	}
	_ = lease.Release(e.Ctx)
}

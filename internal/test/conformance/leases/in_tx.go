package leases

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock"
)

// leaseInTx checks that InTx commits under a term that matches the row, also after its trust
// window, and runs nothing under a term that is over.
func leaseInTx[Tx any](e *env[Tx]) {
	const key = "in tx"
	l, other := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	write := func(what string, lease *sqllock.Lease) (runs int, err error) {
		err = l.InTx(e.Ctx, lease, func(ctx context.Context, tx Tx) error {
			runs++
			if cause := context.Cause(ctx); cause != nil {
				e.Errorf("%s: the function's context has ended: %v", what, cause)
			}
			return e.Effect(ctx, tx, what)
		})
		return runs, err
	}
	commits := func(what string, lease *sqllock.Lease) {
		e.Helper()
		if runs, err := write(what, lease); err != nil || runs == 0 {
			e.Errorf("%s: %d runs, %v", what, runs, err)
		}
		e.WantOnce(what)
	}
	refused := func(what string, lease *sqllock.Lease, want error) {
		e.Helper()
		if runs, err := write(what, lease); !errors.Is(err, want) || runs != 0 || e.Effects(what) != 0 {
			e.Errorf("%s: %d runs, %d effects, %v, want %v", what, runs, e.Effects(what), err, want)
		}
	}
	held := e.MustAcquire(l, key)
	commits("held", held)
	boom := errors.New("boom")
	err := l.InTx(e.Ctx, held, func(ctx context.Context, tx Tx) error {
		return errors.Join(e.Effect(ctx, tx, "failed"), boom)
	}, holdfast.TxOptions{Attempts: 1})
	if !errors.Is(err, boom) || e.Effects("failed") != 0 {
		e.Errorf("the function's error: %v, and %d effects", err, e.Effects("failed"))
	}
	e.MustRelease(held)
	refused("released", held, sqllock.ErrLost)

	short := e.MustAcquire(l, key, sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	e.WantEnded(short, sqllock.ErrLost)
	e.expired(key)
	commits("expired, and granted to nobody", short)
	next := e.MustAcquire(other, key)
	refused("taken over", short, sqllock.ErrLost)
	e.MustRelease(next)
	refused("nil", nil, holdfast.ErrInvalid)
	if err := l.InTx(e.Ctx, next, nil, holdfast.TxOptions{}, holdfast.TxOptions{}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("two options: %v", err)
	}
}

// leaseInTxAgain checks that InTx guards a transaction again on each attempt. Another call takes
// the lease over between two attempts, so the second attempt writes nothing.
func leaseInTxAgain[Tx any](e *env[Tx]) {
	const key, again, over = "in tx again", "run again", "taken over between"
	l, other := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	var runs atomic.Int64
	lease := e.MustAcquire(l, key)
	err := l.InTx(e.Ctx, lease, func(ctx context.Context, tx Tx) error {
		if err := e.Effect(ctx, tx, again); err != nil {
			return err
		}
		if runs.Add(1) == 1 {
			return holdfast.ErrRetry
		}
		return nil
	})
	if err != nil || runs.Load() != 2 {
		e.Errorf("run again: %d runs, %v", runs.Load(), err)
	}
	e.WantOnce(again)

	runs.Store(0)
	err = l.InTx(e.Ctx, lease, func(ctx context.Context, tx Tx) error {
		runs.Add(1)
		if err := e.Effect(ctx, tx, over); err != nil {
			return err
		}
		if err := e.End(ctx, tx, false); err != nil { // frees the lock, as the engine's rollback does
			return err
		}
		if _, err := other.ForceRelease(e.Ctx, key, lease.Token(), holdfast.Actor{By: "test", Reason: "a test"}); err != nil {
			return err
		}
		e.MustRelease(e.MustAcquire(other, key))
		return holdfast.ErrRetry
	})
	if !errors.Is(err, sqllock.ErrLost) || runs.Load() != 1 || e.Effects(over) != 0 {
		e.Errorf("taken over between: %d runs, %d effects, %v, want ErrLost", runs.Load(), e.Effects(over), err)
	}
}

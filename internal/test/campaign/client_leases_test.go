//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// ask is a way to acquire a lock: with one try, or by waiting.
type ask func(ctx context.Context, t *task, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error)

func (c *client[Tx]) lease(ctx context.Context, t *task, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	if t.try {
		return c.locks.TryAcquire(ctx, t.key, opts...)
	}
	return c.locks.Acquire(ctx, t.key, opts...)
}

func (c *client[Tx]) fair(ctx context.Context, t *task, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	with := t.units() == 1
	switch {
	case with && t.try:
		return fairlock.New(c.locks).TryAcquireShared(ctx, t.key, opts...)
	case with:
		return fairlock.New(c.locks).AcquireShared(ctx, t.key, opts...)
	case t.try:
		return fairlock.New(c.locks).TryAcquire(ctx, t.key, opts...)
	}
	return fairlock.New(c.locks).Acquire(ctx, t.key, opts...)
}

func (c *client[Tx]) semaphore(ctx context.Context, t *task, opts ...sqllock.AcquireOptions) (*sqllock.Lease, error) {
	s, err := fairlock.New(c.locks).Semaphore(t.key, permits)
	if err != nil {
		return nil, err
	}
	if t.try {
		return s.TryAcquire(ctx, 1, opts...)
	}
	return s.Acquire(ctx, 1, opts...)
}

// visit acquires a lock, writes under its guard, and ends the lock as its job says.
func (c *client[Tx]) visit(ctx context.Context, t *task, ask ask) error {
	lease, term, err := c.get(ctx, t, ask)
	if lease == nil {
		return err
	}
	h := &holding{lease: lease, term: term, expiry: wall().Add(t.life())}
	c.linger(t, h)
	books := t.books
	if t.job == shared || t.job == permit {
		books = 0 // others may hold it too
		h.watch(t.hold)
	}
	for ; books > 0; books-- {
		h.watch(t.hold / time.Duration(t.books))
		switch err = c.book(ctx, t, h); {
		case errors.Is(err, holdfast.ErrUnknown):
			// The transaction may still commit: a concurrent reader would see an old balance.
			// There is no such reader, because the guard protects the lease.
			books = 1
		case errors.Is(err, sqllock.ErrLost):
			books = 1
		}
	}
	switch t.job {
	case crash:
		h.watch(ttl)
		return err
	case overstay:
		h.watch(ttl)
		time.Sleep(t.hold + shortTTL/2) // the lease has expired in the database too
		if err == nil {
			err = c.book(ctx, t, h) // a guarded commit succeeds unless another holder came before
		}
	}
	return errors.Join(err, c.release(ctx, t, h))
}

func (c *client[Tx]) release(ctx context.Context, _ *task, h *holding) error {
	end := h.term.Release()
	err := h.lease.Release(ctx)
	switch {
	case err == nil, c.Control == anyRelease:
		end.OK()
	case errors.Is(err, sqllock.ErrLost):
		end.Lost()
	default:
		end.Unknown()
	}
	return err
}

// units returns how much of a lock's capacity the task requests; 0 means all.
func (t *task) units() int {
	if t.job == permit || t.job == shared && t.books > 1 {
		return 1
	}
	return 0
}

// life returns the lease's TTL.
func (t *task) life() time.Duration {
	if t.job == crash || t.job == overstay {
		return shortTTL
	}
	return ttl
}

// window returns the longest time for which a client trusts a lease without renewal.
func (t *task) window() time.Duration { return t.life() - min(margin, t.life()/2) }

// get records each attempt to acquire a lock. If another holder has the lock, it returns no
// error.
func (c *client[Tx]) get(ctx context.Context, t *task, ask ask) (*sqllock.Lease, *history.Term, error) {
	opts := sqllock.AcquireOptions{TTL: t.life()}
	if t.life() != ttl || c.Control == inMemory {
		opts.NoRenewal = true
	}
	if c.Control == sessionTrusted && c.Disconnect && t.job == visit {
		opts.TTL = longTTL
	}
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	for {
		grant, sent := t.c.GrantUnits(t.key, t.units()), time.Now()
		lease, err := ask(ctx, t, opts)
		switch {
		case err == nil:
			return lease, grant.Won(lease.Token(), sent.Add(t.window())), nil
		case t.try && errors.Is(err, sqllock.ErrHeld):
			grant.Held()
			if t.plan.key%3 == 0 || ctx.Err() != nil {
				return nil, nil, nil
			}
			time.Sleep(20 * time.Millisecond)
		default:
			grant.Unknown()
			return nil, nil, err
		}
	}
}

// A holding is a lock that a worker holds, with the worker's knowledge of it.
type holding struct {
	lease  *sqllock.Lease
	term   *history.Term
	expiry time.Time // by this process's wall clock; no code should trust it
	deaf   bool      // does not look whether the lease's context has ended
}

func (h *holding) context() context.Context {
	if h.deaf {
		return context.WithoutCancel(h.lease.Context())
	}
	return h.lease.Context()
}

// watch holds the lock for d and checks its context continuously. It returns early when the
// context ends.
func (h *holding) watch(d time.Duration) {
	const look = 4 * time.Millisecond
	for end := time.Now().Add(d); h.term.Observe(h.context()) && time.Now().Before(end); {
		time.Sleep(min(look, d))
	}
}

// book books a refund of a lease's order: it reads the balance, waits, and writes it. Only the
// guard makes this safe.
func (c *client[Tx]) book(ctx context.Context, t *task, h *holding) error {
	h.term.Observe(h.context())
	if err := c.looks(t, h); err != nil {
		return err
	}
	t.written++
	a := answer{Job: visit, Key: t.key, ID: fmt.Sprint(t.id, ".", t.written), Outcome: executed}
	var sent *history.Action
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if sent != nil {
			sent.Failed() // otherwise it would not run again
			sent = nil
		}
		if err := c.guard(ctx, tx, h); err != nil {
			return err
		}
		if err := c.enter(ctx, tx, t, a.ID, h.lease.Token()); err != nil {
			return err
		}
		sent = h.term.Commit()
		return nil
	}, holdfast.TxOptions{LockTimeout: 2 * time.Second})
	switch {
	case err == nil:
		sent.OK()
	case errors.Is(err, holdfast.ErrUnknown):
		a.Outcome = unknown
	default:
		a.Outcome, a.Err = refused, err.Error()
		if sent != nil {
			sent.Failed()
		}
	}
	t.b.told(a)
	h.term.Observe(h.context())
	return err
}

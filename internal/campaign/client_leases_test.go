//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// ask is a way to ask for a lock: once, or waiting for it.
type ask func(ctx context.Context, t *task, opts ...sqllock.Option) (*sqllock.Lease, error)

func (c *client[Tx]) lease(ctx context.Context, t *task, opts ...sqllock.Option) (*sqllock.Lease, error) {
	if t.try {
		return c.locks.TryAcquire(ctx, t.key, opts...)
	}
	return c.locks.Acquire(ctx, t.key, opts...)
}

func (c *client[Tx]) fair(ctx context.Context, t *task, opts ...sqllock.Option) (*sqllock.Lease, error) {
	with := t.job == shared && t.books > 1
	switch {
	case with && t.try:
		return c.locks.Fair().TryAcquireShared(ctx, t.key, opts...)
	case with:
		return c.locks.Fair().AcquireShared(ctx, t.key, opts...)
	case t.try:
		return c.locks.Fair().TryAcquire(ctx, t.key, opts...)
	}
	return c.locks.Fair().Acquire(ctx, t.key, opts...)
}

func (c *client[Tx]) semaphore(ctx context.Context, t *task, opts ...sqllock.Option) (*sqllock.Lease, error) {
	s, err := c.locks.Semaphore(t.key, permits)
	if err != nil {
		return nil, err
	}
	if t.try {
		return s.TryAcquire(ctx, 1, opts...)
	}
	return s.Acquire(ctx, 1, opts...)
}

// visit gets a lock, writes under its guard, and ends it in the manner of its
// job.
func (c *client[Tx]) visit(ctx context.Context, t *task, ask ask) error {
	lease, term, err := c.get(ctx, t, ask)
	if lease == nil {
		return err
	}
	h := &holding{lease: lease, term: term, expiry: wall().Add(t.life())}
	books := t.books
	if t.job == shared || t.job == permit {
		books = 0 // others may have it as well
	}
	for ; books > 0; books-- {
		h.watch(t.hold / time.Duration(t.books))
		switch err = c.book(ctx, t, h); {
		case errors.Is(err, holdfast.ErrUnknown):
			// It may yet commit: whoever reads the balance meanwhile, reads an
			// old one. Nobody else does, for the guard keeps the lease.
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
		time.Sleep(t.hold + shortTTL/2) // its time is over in the database as well
		if err == nil {
			err = c.book(ctx, t, h) // guarded, it goes well unless another has been there
		}
	}
	return errors.Join(err, c.release(ctx, t, h))
}

func (c *client[Tx]) release(ctx context.Context, _ *task, h *holding) error {
	end := h.term.Release()
	err := h.lease.Release(ctx)
	switch {
	case err == nil:
		end.OK()
	case errors.Is(err, sqllock.ErrLost):
		end.Lost()
	default:
		end.Unknown()
	}
	return err
}

// life is the lease's TTL.
func (t *task) life() time.Duration {
	if t.job == crash || t.job == overstay {
		return shortTTL
	}
	return ttl
}

// window is at most how long a lease is trusted that is not renewed.
func (t *task) window() time.Duration { return t.life() - min(margin, t.life()/2) }

// get records each attempt to get a lock. No error is returned where somebody
// has it.
func (c *client[Tx]) get(ctx context.Context, t *task, ask ask) (*sqllock.Lease, *history.Term, error) {
	opts := []sqllock.Option{sqllock.WithTTL(t.life())}
	if t.life() != ttl || c.Control == inMemory {
		opts = append(opts, sqllock.WithoutRenewal())
	}
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	for {
		grant, sent := t.c.Grant(t.key), time.Now()
		lease, err := ask(ctx, t, opts...)
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

// A holding is a lock that a worker has, and what it knows of it.
type holding struct {
	lease  *sqllock.Lease
	term   *history.Term
	expiry time.Time // by this process's wall clock: nobody should trust in it
}

// watch holds the lock for a while, and looks at its context all the time. It
// ends early when that does.
func (h *holding) watch(d time.Duration) {
	const look = 4 * time.Millisecond
	for end := time.Now().Add(d); h.term.Observe(h.lease.Context()) && time.Now().Before(end); {
		time.Sleep(min(look, d))
	}
}

// book books a refund of a lease's order: read the balance, think, write it. Only
// the guard makes that safe.
func (c *client[Tx]) book(ctx context.Context, t *task, h *holding) error {
	h.term.Observe(h.lease.Context())
	if err := c.looks(t, h); err != nil {
		return err
	}
	t.written++
	a := answer{Job: visit, Key: t.key, ID: fmt.Sprint(t.id, ".", t.written), Outcome: executed}
	var sent *history.Action
	err := c.db.InTx(ctx, holdfast.TxOptions{LockTimeout: 2 * time.Second}, func(ctx context.Context, tx Tx) error {
		if sent != nil {
			sent.Failed() // or it would not run again
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
	})
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
	h.term.Observe(h.lease.Context())
	return err
}

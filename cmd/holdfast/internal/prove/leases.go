package prove

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/reaper"
	"github.com/holdfast-go/holdfast/sqllock"
)

// takeoverWait bounds a call that must not be granted.
const takeoverWait = 3 * time.Second

// guard lets one client take over the lease of another. Then a third client requests the lease
// while a guarded transaction is open.
func guard(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	const key = "guard"
	a, b, c := clients[0], clients[1], clients[2]
	short := []sqllock.AcquireOptions{{TTL: shortTTL, NoRenewal: true}}
	first, err := a.locks.Acquire(ctx, key, short...)
	if err != nil {
		return err
	}
	if err := expired(ctx, b, key); err != nil {
		return err
	}
	second, err := b.locks.Acquire(ctx, key, short...)
	if err != nil {
		return err
	}
	if err := t.staleTerm(ctx, a, first); err != nil {
		return err
	}

	t.attempts.Add(1)
	tx, err := b.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	k := t.ids.Add(1)
	if err := b.locks.Guard(ctx, tx, second.Term()); err != nil {
		return err
	}
	if err := t.effect(ctx, tx, k); err != nil {
		return err
	}
	if err := expired(ctx, c, key); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, takeoverWait)
	defer cancel()
	_, err = c.locks.TryAcquire(bounded, key, short...)
	switch waited := bounded.Err() != nil && ctx.Err() == nil; {
	case err == nil:
		return brokenf("a lease was granted while a transaction that was guarded by its former term was open: a stale commit may follow")
	case !waited && !errors.Is(err, sqllock.ErrHeld):
		return err // it may have been granted
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	third, err := c.locks.Acquire(ctx, key, sqllock.AcquireOptions{TTL: longTTL})
	if err != nil {
		return err
	}
	if third.Token() <= second.Token() || second.Token() <= first.Token() {
		return brokenf("three terms of one lease have the tokens %d, %d, %d", first.Token(), second.Token(), third.Token())
	}
	return errors.Join(t.staleTerm(ctx, b, second), third.Release(ctx))
}

// staleTerm writes under a term that has passed to another client.
func (t *trial) staleTerm(ctx context.Context, c *client, lease *sqllock.Lease) error {
	t.attempts.Add(1)
	k := t.ids.Add(1)
	err := c.db.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := c.locks.Guard(ctx, tx, lease.Term()); err != nil {
			return err
		}
		return t.effect(ctx, tx, k)
	})
	switch {
	case err == nil:
		return brokenf("Guard let a transaction commit under a term that had been taken over")
	case !errors.Is(err, sqllock.ErrLost):
		return err
	}
	n, err := t.effects(ctx, k)
	return errors.Join(err, unless(err != nil || n == 0, "a transaction that Guard refused left an effect"))
}

// tokens acquires one lease again and again.
func tokens(ctx context.Context, t *trial) error {
	const key = "tokens"
	last := int64(0)
	for range rounds {
		// A new client each time, as after a restart.
		c, err := t.newClient(ctx, nil, idempotency.Options{})
		if err != nil {
			return err
		}
		if err := errors.Join(t.rising(ctx, c, key, &last), t.forced(ctx, c, key, &last), t.reaped(ctx, c, key, &last)); err != nil {
			return err
		}
		c.close(ctx)
	}
	return nil
}

// rising acquires and releases the lease, and checks that the token rises.
func (t *trial) rising(ctx context.Context, c *client, key string, last *int64) error {
	for range rounds {
		t.attempts.Add(1)
		lease, err := c.locks.Acquire(ctx, key, sqllock.AcquireOptions{TTL: longTTL})
		if err != nil {
			return err
		}
		if lease.Token() <= *last {
			return brokenf("token %d was granted after token %d of the same key", lease.Token(), *last)
		}
		*last = lease.Token()
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// forced takes the lease away with ForceRelease.
func (t *trial) forced(ctx context.Context, c *client, key string, last *int64) error {
	lease, err := c.locks.Acquire(ctx, key, sqllock.AcquireOptions{TTL: longTTL})
	if err != nil {
		return err
	}
	*last = lease.Token()
	if had, err := c.locks.ForceRelease(ctx, key, lease.Token(), holdfast.Actor{By: "holdfast prove", Reason: "a check"}); err != nil || !had {
		return errors.Join(err, unless(had || err != nil, "a lease that was just granted could not be taken away"))
	}
	if err := lease.Release(ctx); !errors.Is(err, sqllock.ErrLost) {
		return errors.Join(err, brokenf("a lease that was taken away was released as if it had been held to the end"))
	}
	return t.rising(ctx, c, key, last)
}

// reaped lets the reaper delete the rows of free leases, as if they had been unused for a day.
func (t *trial) reaped(ctx context.Context, c *client, key string, last *int64) error {
	const day = 24 * time.Hour
	err := t.exec(ctx, c.pool, `UPDATE {locks} SET expires_at = expires_at - $1 WHERE attempt IS NULL`, day.Microseconds())
	if err != nil {
		return err
	}
	r, err := reaper.New(ctx, c.db)
	if err != nil {
		return err
	}
	if _, err := r.Sweep(ctx); err != nil {
		return err
	}
	if _, found, err := c.locks.Inspect(ctx, key); err != nil {
		return err
	} else if found {
		return errors.New("the reaper has not deleted the row of a lease that was due")
	}
	return t.rising(ctx, c, key, last)
}

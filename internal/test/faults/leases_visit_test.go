package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// manner is how a visitor of a key ends its lease.
type manner int

const (
	orderly  manner = iota
	crashes         // never releases or renews it
	oversees        // does not renew it, and releases it when another holds it
)

// visit is a goroutine's use of a key.
type visit struct {
	key    string
	manner manner
	try    bool // tries again and again instead of waiting
	ttl    time.Duration
	hold   time.Duration
	wait   time.Duration // gives up after this time; when it tries, at once
}

// visit acquires the lease, makes a guarded commit, and ends the lease. It returns the errors
// that no caller should see.
func (p *party) visit(ctx context.Context, c *history.Client, v visit) error {
	lease, term, err := p.get(ctx, c, v)
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	defer term.Watch(lease.Context())()
	if err := p.write(ctx, lease, guarded, term); err != nil && (!errors.Is(err, sqllock.ErrLost) || v.manner == orderly) {
		_ = lease.Release(ctx) // otherwise the others would wait forever
		return fmt.Errorf("guarded commit: %w", err)
	}
	time.Sleep(v.hold)
	switch v.manner {
	case crashes:
		<-lease.Context().Done()
		return nil
	case oversees:
		<-lease.Context().Done()
		if err := p.another(ctx, c, lease); err != nil {
			return fmt.Errorf("try: %w", err)
		}
	}
	end := term.Release()
	err = lease.Release(ctx)
	switch {
	case errors.Is(context.Cause(lease.Context()), sqllock.ErrClosed): // Close ended it, some time before
	case err == nil:
		end.OK()
	case errors.Is(err, sqllock.ErrLost):
		end.Lost()
		if v.manner != orderly {
			err = nil
		}
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil: // its own bound ended the wait: the release continues in the background
		err = nil
	}
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if v.manner == oversees {
		if err := p.write(ctx, lease, guarded, term); !errors.Is(err, sqllock.ErrLost) {
			return fmt.Errorf("late guarded commit: want ErrLost: %w", err)
		}
	}
	return nil
}

// another waits, for a limited time, until another call holds the key of a lease.
func (p *party) another(ctx context.Context, c *history.Client, lease *sqllock.Lease) error {
	for range 50 {
		var held *sqllock.HeldError
		grant := c.Grant(lease.Key())
		mine, err := p.locks.TryAcquire(ctx, lease.Key())
		switch {
		case errors.As(err, &held):
			if grant.Held(); held.Token > lease.Token() && held.Remaining > 0 {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		case err != nil:
			return err
		default:
			end := grant.Won(mine.Token(), time.Time{}).Release()
			if err := mine.Release(ctx); err != nil {
				return err
			}
			end.OK()
			return nil
		}
	}
	return nil
}

// get records each attempt to acquire a lease.
func (p *party) get(ctx context.Context, c *history.Client, v visit) (*sqllock.Lease, *history.Term, error) {
	opts := sqllock.AcquireOptions{TTL: v.ttl}
	if v.manner != orderly {
		opts.NoRenewal = true
	}
	if v.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.wait)
		defer cancel()
	}
	for {
		grant, sent := c.Grant(v.key), time.Now()
		var lease *sqllock.Lease
		var err error
		if v.try {
			lease, err = p.locks.TryAcquire(ctx, v.key, opts)
		} else {
			lease, err = p.locks.Acquire(ctx, v.key, opts)
		}
		switch {
		case err == nil:
			return lease, grant.Won(lease.Token(), p.window(sent, v.ttl)), nil
		case v.try && errors.Is(err, sqllock.ErrHeld):
			if grant.Held(); v.wait > 0 {
				return nil, nil, err
			}
			time.Sleep(time.Duration(5+rand.IntN(30)) * time.Millisecond)
		default:
			grant.Unknown()
			return nil, nil, err
		}
	}
}

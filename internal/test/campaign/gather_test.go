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
)

// gather acquires all leases of an epoch together, and writes to all under the guards of all.
func (c *client[Tx]) gather(ctx context.Context, t *task) error {
	ctx, cancel := context.WithTimeout(ctx, t.wait+time.Second)
	defer cancel()
	var keys []string
	var grants []*history.Grant
	for n := range leaseKeys {
		keys = append(keys, keyOf(t.b.epoch, "lease", n))
		grants = append(grants, t.b.rec.Client(100+n).Grant(keys[n]))
	}
	sent, ask := time.Now(), c.locks.AcquireAll
	if t.try {
		ask = c.locks.TryAcquireAll
	}
	leases, err := ask(ctx, keys, sqllock.AcquireOptions{TTL: ttl})
	if err != nil {
		for _, g := range grants {
			g.Unknown() // some were granted, and released again
		}
		return err
	}
	var held []*holding
	for n, lease := range leases.All() {
		held = append(held, &holding{lease: lease, term: grants[n].Won(lease.Token(), sent.Add(t.window()))})
	}
	for range int(t.hold / (5 * time.Millisecond)) {
		for _, h := range held {
			h.term.Observe(h.lease.Context())
		}
		time.Sleep(5 * time.Millisecond)
	}
	err = c.bookAll(ctx, t, leases, held)
	for _, h := range held {
		h.term.Observe(h.lease.Context()) // it may have ended meanwhile
		err = errors.Join(err, c.release(context.WithoutCancel(ctx), t, h))
	}
	return err
}

func (c *client[Tx]) bookAll(ctx context.Context, t *task, leases *sqllock.Leases, held []*holding) error {
	var sent []*history.Action
	err := c.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		for _, s := range sent {
			s.Failed() // otherwise it would not run again
		}
		sent = nil
		if c.Control != noGuard && c.Control != inMemory {
			if err := c.locks.Guard(ctx, tx, leases.Terms()...); err != nil {
				return err
			}
		}
		for n, h := range held {
			one := *t
			one.key = h.lease.Key()
			if err := c.enter(ctx, tx, &one, fmt.Sprint(t.id, ".", n), h.lease.Token()); err != nil {
				return err
			}
		}
		for _, h := range held {
			sent = append(sent, h.term.Commit())
		}
		return nil
	}, holdfast.TxOptions{LockTimeout: 2 * time.Second})
	for n, h := range held {
		a := answer{Job: t.job, Key: h.lease.Key(), ID: fmt.Sprint(t.id, ".", n), Outcome: executed}
		switch {
		case err == nil:
			sent[n].OK()
		case errors.Is(err, holdfast.ErrUnknown):
			a.Outcome = unknown
		default:
			a.Outcome, a.Err = refused, err.Error()
			if len(sent) > n {
				sent[n].Failed()
			}
		}
		t.b.told(a)
	}
	return err
}

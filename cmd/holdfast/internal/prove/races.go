package prove

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/sqllock"
)

// rounds is how often each race runs.
const rounds = 5

func inProgress(err error) bool { return errors.Is(err, idempotency.ErrInProgress) }

func (t *trial) doTx(ctx context.Context, c *client, tx *sql.Tx, k int64) error {
	_, err := idempotency.DoTx(ctx, c.store, tx, op(k), func(ctx context.Context, tx *sql.Tx) (int64, error) {
		return k, t.effect(ctx, tx, k)
	})
	return err
}

// executedOnce requests a key until it has an answer, and counts its effects.
func (t *trial) executedOnce(ctx context.Context, c *client, k int64) error {
	t.attempts.Add(1)
	if _, err := t.do(ctx, c, op(k), k); err != nil {
		return err
	}
	switch n, err := t.effects(ctx, k); {
	case err != nil:
		return err
	case n != 1:
		return brokenf("a key has %d effects, and its answer is that it was done once", n)
	}
	return nil
}

func claimRace(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	for range rounds {
		k := t.ids.Add(1)
		var executed atomic.Int64
		run := t.together()
		err := race(racers, func(i int) error {
			t.attempts.Add(1)
			res, err := idempotency.Do(ctx, clients[i].store, op(k), func(ctx context.Context, tx *sql.Tx) (int64, error) {
				run()
				return k, t.effect(ctx, tx, k)
			})
			if err == nil && res.Outcome == idempotency.Executed {
				executed.Add(1)
			}
			if inProgress(err) {
				return nil
			}
			return err
		})
		if n := executed.Load(); n > 1 {
			return brokenf("%d sessions executed one key, which they claimed at the same moment", n)
		}
		if err != nil {
			return err
		}
		if err := t.executedOnce(ctx, clients[0], k); err != nil {
			return err
		}
	}
	return nil
}

// together keeps a function running until a second one runs beside it, or long enough for
// others to start.
func (t *trial) together() (run func()) {
	var begun atomic.Int64
	two := make(chan struct{})
	return func() {
		if begun.Add(1) == 2 {
			close(two)
		}
		select {
		case <-two:
		case <-time.After(t.o.overlap):
		}
	}
}

// leaseRace lets clients race for a lease that has no row, for one that was released, and for
// one that expired without a renewal.
func leaseRace(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	const key = "lease race"
	last := int64(0)
	for range rounds {
		won, err := t.raceForLease(ctx, clients, key, last)
		if err != nil {
			return err
		}
		last = won.Token()
		if err := won.Release(ctx); err != nil {
			return err
		}
	}
	held, err := clients[0].locks.Acquire(ctx, key, sqllock.AcquireOptions{TTL: shortTTL, NoRenewal: true})
	if err != nil {
		return err
	}
	if err := expired(ctx, clients[1], key); err != nil {
		return err
	}
	won, err := t.raceForLease(ctx, clients[1:], key, held.Token())
	if err != nil {
		return err
	}
	if held.Context().Err() == nil {
		return brokenf("a lease was granted to another while the context of its former holder had not ended")
	}
	return won.Release(ctx)
}

// raceForLease returns the one lease that was granted.
func (t *trial) raceForLease(ctx context.Context, clients []*client, key string, last int64) (*sqllock.Lease, error) {
	for {
		won := make([]*sqllock.Lease, len(clients))
		err := race(len(clients), func(i int) (err error) {
			t.attempts.Add(1)
			won[i], err = clients[i].locks.TryAcquire(ctx, key, sqllock.AcquireOptions{TTL: longTTL})
			if errors.Is(err, sqllock.ErrHeld) {
				return nil
			}
			return err
		})
		var lease *sqllock.Lease
		granted := 0
		for _, l := range won {
			if l != nil {
				lease, granted = l, granted+1
			}
		}
		switch {
		case granted > 1:
			return nil, brokenf("one lease was granted to %d sessions at the same moment", granted)
		case err != nil:
			return nil, err
		case granted == 0: // each client gave way to another
			if err := pause(ctx); err != nil {
				return nil, err
			}
			continue
		case lease.Token() <= last:
			return nil, brokenf("token %d was granted after token %d of the same key", lease.Token(), last)
		}
		return lease, nil
	}
}

// expired waits until a lease has expired by the database's clock.
func expired(ctx context.Context, c *client, key string) error {
	for {
		info, _, err := c.locks.Inspect(ctx, key)
		if err != nil || !info.Held {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// versioned is a row of the run's own table.
type versioned struct {
	K       int64 `db:"k"`
	N       int64 `db:"n"`
	Version int64 `db:"version"`
}

func lostUpdate(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	k, err := t.newRow(ctx)
	if err != nil {
		return err
	}
	tables := make([]*optimistic.Table[versioned, *sql.Tx], racers)
	for i, c := range clients {
		tables[i], err = optimistic.New[versioned](ctx, c.db, holdfast.TableSpec{
			Table: t.prefix + "rows", Schema: t.o.Open.Schema, Key: []string{"k"},
		})
		if err != nil {
			return err
		}
	}
	for round := range rounds {
		row, err := tables[0].Get(ctx, versioned{K: k})
		if err != nil {
			return err
		}
		var updated, winner atomic.Int64
		err = race(racers, func(i int) error {
			t.attempts.Add(1)
			mine := row
			mine.N = int64(round*racers + i + 1)
			_, err := tables[i].Update(ctx, mine)
			if err == nil {
				updated.Add(1)
				winner.Store(mine.N)
			}
			if errors.Is(err, optimistic.ErrConflict) {
				return nil
			}
			return err
		})
		n, e := t.number(ctx, t.pool, `SELECT n FROM {rows} WHERE k = $1`, k)
		switch {
		case updated.Load() > 1:
			return brokenf("%d sessions updated one version of a row", updated.Load())
		case err != nil || e != nil:
			return errors.Join(err, e)
		case updated.Load() != 1 || n != winner.Load():
			return brokenf("%d of %d updates of one version of a row succeeded, the last with %d, and the row says %d", updated.Load(), racers, winner.Load(), n)
		}
	}
	return nil
}

// twins returns keys that a collation or a truncation would treat as equal.
func twins() []string {
	long := make([]byte, sqllock.MaxKey)
	for i := range long {
		long[i] = 'x'
	}
	other := slices.Clone(long)
	other[len(other)-1] = 'y'
	return []string{
		"twin", "TWIN", "twin ", " twin", "twin\x00", "twín", "twi\u0301n", "\u0422WIN", "twin\U0001f600", "twin\U0001f601",
		"ss", "ß", string(long), string(other), "\xff", "\xfe", strconv.Quote("twin"),
	}
}

func twinKeys(ctx context.Context, t *trial) error {
	clients, err := t.racing(ctx)
	if err != nil {
		return err
	}
	c := clients[0]
	for _, key := range twins() {
		k := t.ids.Add(1)
		o := op(k)
		o.Key = key
		t.attempts.Add(2)
		outcome, err := t.do(ctx, c, o, k)
		if errors.Is(err, idempotency.ErrMismatch) || err == nil && outcome != idempotency.Executed {
			return brokenf("the key %.20q was taken for another", key)
		}
		if err != nil {
			return err
		}
		if _, err := c.locks.TryAcquire(ctx, key, sqllock.AcquireOptions{TTL: longTTL}); errors.Is(err, sqllock.ErrHeld) {
			return brokenf("the lock on %.20q was taken for that on another key", key)
		} else if err != nil {
			return err
		}
	}
	return nil
}

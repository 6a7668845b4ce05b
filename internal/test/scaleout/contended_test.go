package scaleout_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/limits"
	"github.com/holdfast-go/holdfast/optimistic"
	"github.com/holdfast-go/holdfast/optimistic/register"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/election"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

const (
	programs = 4 // each with a pool and its own Locker
	turns    = 10
)

// balance is read and then written, so two turns at the same time lose one.
type balance struct {
	c     *client
	owner string
}

func (b balance) read(ctx context.Context, tx *sql.Tx) (n int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT refunded FROM orders WHERE owner = ?`, b.owner).Scan(&n)
	return n, err
}

func (b balance) add(ctx context.Context, tx *sql.Tx) error {
	n, err := b.read(ctx, tx)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE orders SET refunded = ? WHERE owner = ?`, n+1, b.owner)
	}
	return err
}

func (b balance) inTx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	return b.c.db.InTx(ctx, f, holdfast.TxOptions{Isolation: sql.LevelReadCommitted})
}

// under adds in the turn that a lease gives, and ends the turn.
func (b balance) under(ctx context.Context, lease interface {
	Release(ctx context.Context) error
}, err error,
) error {
	if err != nil {
		return err
	}
	added := b.inTx(ctx, b.add)
	if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("added: %w; the release: %v", added, err) //nolint:errorlint // such a turn is not taken again
	}
	return added
}

// primitives are those that exclude each other, or refuse one of two. Each adds one to the balance.
var primitives = map[string]func(ctx context.Context, b balance, turn int) error{
	"lease": func(ctx context.Context, b balance, _ int) error {
		lease, err := b.c.locks.For(b.owner).Acquire(ctx, "key")
		return b.under(ctx, lease, err)
	},
	"several leases": func(ctx context.Context, b balance, turn int) error {
		keys := []string{"key", "other"}
		if turn%2 == 1 {
			slices.Reverse(keys)
		}
		all, err := b.c.locks.For(b.owner).AcquireAll(ctx, keys)
		return b.under(ctx, all, err)
	},
	"election": func(ctx context.Context, b balance, turn int) error {
		leader, err := election.New(b.c.locks.For(b.owner), "key").Campaign(ctx, []byte(strconv.Itoa(turn)))
		if err != nil {
			return err
		}
		return b.under(ctx, leader.Lease, nil)
	},
	"fair lock": func(ctx context.Context, b balance, _ int) error {
		lease, err := fairlock.New(b.c.locks.For(b.owner)).Acquire(ctx, "key")
		return b.under(ctx, lease, err)
	},
	// A shared turn before each exclusive one sees no write.
	"shared lock": func(ctx context.Context, b balance, _ int) error {
		fair := fairlock.New(b.c.locks.For(b.owner))
		err := fair.DoShared(ctx, "key", func(context.Context, *sqllock.Lease) error {
			var first, second int64
			err := b.inTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) { first, err = b.read(ctx, tx); return err })
			if err == nil {
				err = b.inTx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) { second, err = b.read(ctx, tx); return err })
			}
			if err == nil && first != second {
				err = fmt.Errorf("a shared lock saw %d and then %d", first, second)
			}
			return err
		})
		if err != nil {
			return err
		}
		lease, err := fair.Acquire(ctx, "key")
		return b.under(ctx, lease, err)
	},
	"semaphore": func(ctx context.Context, b balance, _ int) error {
		s, err := fairlock.New(b.c.locks.For(b.owner)).Semaphore("key", 3)
		if err != nil {
			return err
		}
		lease, err := s.Acquire(ctx, 2)
		return b.under(ctx, lease, err)
	},
	"row lock": func(ctx context.Context, b balance, _ int) error {
		return b.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := b.c.keys.For(b.owner).LockTx(ctx, tx, "key", holdfast.Forever); err != nil {
				return err
			}
			return b.add(ctx, tx)
		})
	},
	"register": func(ctx context.Context, b balance, _ int) error {
		all, err := register.New(ctx, b.c.db)
		if err != nil {
			return err
		}
		values := all.For(b.owner)
		return optimistic.Retry(ctx, b.c.db, func(ctx context.Context, tx *sql.Tx) error {
			e, err := values.GetTx(ctx, tx, "key")
			switch {
			case errors.Is(err, register.ErrNotFound):
				_, err = values.CreateTx(ctx, tx, "key", []byte("1"))
			case err == nil:
				_, err = values.CompareAndSwapTx(ctx, tx, "key", e.Revision, strconv.AppendInt(nil, e.Revision+1, 10))
			}
			if err != nil {
				return err
			}
			return b.add(ctx, tx)
		}, optimistic.RetryOptions{Attempts: 100, Isolation: sql.LevelReadCommitted})
	},
	"limit": func(ctx context.Context, b balance, turn int) error {
		all, err := limits.New(ctx, b.c.db, "refunds")
		if err != nil {
			return err
		}
		limit, take := all.For(b.owner), limits.Request{Key: "key", ID: fmt.Sprintf("%p %d", b.c, turn), Amount: 1}
		if _, err := limit.Set(ctx, "key", programs*turns); err != nil {
			return err
		}
		return b.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := limit.TakeTx(ctx, tx, take); err != nil {
				return err
			}
			return b.add(ctx, tx)
		})
	},
}

// TestContended lets four programs take turns on one key of each primitive. Each turn ends, which it does
// not if a waiting call is not told that it has its turn.
func TestContended(t *testing.T) {
	for _, url := range sharded(t) {
		t.Run(keyspaceOf(url), func(t *testing.T) {
			tables(t, url)
			all := make([]*client, programs)
			for i := range all {
				all[i] = open(t, url)
			}
			for _, name := range slices.Sorted(maps.Keys(primitives)) {
				t.Run(name, func(t *testing.T) { contend(t, all, name) })
			}
		})
	}
}

func contend(t *testing.T, all []*client, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	owner := fmt.Sprintf("%s, %d", name, time.Now().UnixNano())
	if _, err := all[0].pool.ExecContext(ctx, `INSERT INTO orders (owner, refunded, version) VALUES (?, 0, 1)`, owner); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for turn := range turns {
				err := primitives[name](ctx, balance{c, owner}, turn)
				for ctx.Err() == nil && c.db.Retryable(err) { // it was rolled back
					err = primitives[name](ctx, balance{c, owner}, turn)
				}
				if err != nil {
					t.Errorf("turn %d: %v", turn, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var n int64
	if err := all[0].pool.QueryRowContext(t.Context(), `SELECT refunded FROM orders WHERE owner = ?`, owner).Scan(&n); err != nil || n != programs*turns {
		t.Errorf("%d turns are counted, %v, want %d", n, err, programs*turns)
	}
	t.Logf("programs=%d turns=%d in %v", programs, n, time.Since(began).Round(time.Millisecond))
}

package rowwait

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/lockname"
)

// ErrOldSnapshot means that the transaction would not see the writes of the last holder.
var ErrOldSnapshot = errors.New("the transaction's snapshot is older than the last holder's commit: lock first in the transaction, before it reads")

// Rows remembers which rows exist. It may be wrong.
type Rows interface {
	Has(name lockname.Name) bool
	Add(name lockname.Name)
}

// keyRow locks the row that stands for a key.
type keyRow struct {
	*Wait

	name  lockname.Name
	known Rows
}

// LockKey locks the row with this name in the table of locks. If the row does not exist,
// LockKey makes it first.
func (w *Wait) LockKey(ctx context.Context, name lockname.Name, known Rows) error {
	k := &keyRow{w, name, known}
	if w.sql.Hold == "" {
		return k.lock(ctx)
	}
	return k.write(ctx)
}

func (k *keyRow) stmt(name, text string) core.Stmt { return k.env.stmt("locks."+name, text) }

// write locks the row by one write in the caller's transaction. The write also makes the row.
func (k *keyRow) write(ctx context.Context) error {
	if k.now() && k.sql.TryHold != "" {
		var moved, there int
		_, err := k.stmt("try hold", k.sql.TryHold).QueryRow(ctx, k.q, []any{&moved, &there}, k.name.Args()...)
		switch {
		case err != nil || moved > 0:
			return err
		case there > 0:
			return k.over()
		}
		// The row does not exist, or is not committed yet: the insert has to wait.
	}
	return k.until(ctx, !k.sql.HoldBounds, func(bound time.Duration) error {
		_, err := k.stmt("hold", k.sql.Hold).Exec(ctx, k.q, k.name.Args(k.sql.Bound(bound))...)
		return err
	})
}

// lock locks a row that is already committed, if possible. A locking read of a missing row
// would lock the gap: two transactions would then wait for each other's insert, even of
// another key, and other connections of this process could not insert the row.
func (k *keyRow) lock(ctx context.Context) error {
	there, inserted := k.known.Has(k.name), false
	if !there {
		_, err := k.make(ctx)
		there = err == nil
	}
	for {
		// An insert cannot return at once.
		if there || k.now() {
			var token, granted int64
			found, err := k.LockRow(ctx, "locks.lock", k.env.Names.Replace(k.sql.Lock), []any{&token, &granted}, k.name.Args()...)
			switch {
			case k.onlySlow(ctx, err):
				continue
			case err != nil:
				return err
			}
			if found {
				k.known.Add(k.name)
				return k.move(ctx, token, granted)
			}
			if inserted {
				// TiDB may have seen a row at the insert that was deleted before its lock.
				return ErrOldSnapshot
			}
		}
		// The reaper has deleted the row, or no connection was free to make it.
		err := k.insert(ctx, k.q)
		inserted = err == nil
		if k.busy(err) && k.env.Alive(ctx, k.q) == nil {
			// Another transaction holds the row, and this transaction outlived the wait.
			if err = nil; k.mode != Forever {
				err = k.over()
			}
		}
		if err != nil {
			return err
		}
		there = true
	}
}

// onlySlow reports whether err, of a read that was too slow, took a missing row for a locked one.
// Then it has made the row.
func (k *keyRow) onlySlow(ctx context.Context, err error) bool {
	if !errors.Is(err, ErrNotAvailable) || k.sql.Left != dialect.LeftWaits {
		return false
	}
	made, err := k.make(ctx)
	return made && err == nil
}

// move changes the token of the locked row. It fails if the transaction's snapshot is older
// than the writes of the last holder. If the transaction has no snapshot yet, the read fixes
// one that is as new as the lock. A row that is not in the snapshot is newer than it. If no
// transaction has held that row yet, the snapshot misses nothing.
func (k *keyRow) move(ctx context.Context, token, granted int64) error {
	var shown int64
	found, err := k.stmt("snapshot", k.sql.Find).QueryRow(ctx, k.q, []any{&shown}, k.name.Args()...)
	switch {
	case err != nil:
		return err
	case found && shown != token, !found && granted != 0:
		return ErrOldSnapshot
	}
	_, err = k.stmt("move", k.sql.Move).Exec(ctx, k.q, k.name.Args()...)
	return err
}

// make makes the row on a connection of the pool, unless it exists.
func (k *keyRow) make(ctx context.Context) (made bool, err error) {
	found := false
	err = k.env.OnPool(ctx, "", func(q core.Querier) (err error) {
		var token int64
		found, err = k.stmt("find", k.sql.Find).QueryRow(ctx, q, []any{&token}, k.name.Args()...)
		return err
	})
	if err != nil || found {
		return false, err
	}
	// If a statement fails on a connection with a changed setting, the connection is closed.
	before := ""
	if k.sql.MakeBound.Before != nil {
		before = k.sql.MakeBound.Before(time.Second)
	}
	err = k.env.OnPool(ctx, before, func(q core.Querier) error {
		_, err := k.stmt("make", k.sql.Make).Exec(ctx, q, k.name.Args()...)
		if before != "" && err == nil {
			_, err = core.Stmt{Name: "unset", Text: k.sql.MakeBound.After}.Exec(ctx, q)
		}
		return err
	})
	return err == nil, err
}

// OnPool runs f on a connection of the pool. It fails if no connection is free within
// e.PoolWait. before, if given, is a setting for f's statement.
func (e *Env) OnPool(ctx context.Context, before string, f func(q core.Querier) error) error {
	return core.OnFree(ctx, e.PoolWait, e.OnConn, before, f)
}

// insert makes the row in the caller's transaction.
func (k *keyRow) insert(ctx context.Context, q core.Querier) error {
	return k.sql.MakeBound.During(ctx, q, time.Second, func() error {
		_, err := k.stmt("insert", k.sql.Make).Exec(ctx, q, k.name.Args()...)
		return err
	})
}

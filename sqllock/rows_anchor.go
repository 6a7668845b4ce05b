package sqllock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// errOldSnapshot is why a transaction is refused that would not see what the
// last holder has written.
var errOldSnapshot = errors.New("the transaction's snapshot is older than the last holder's commit: lock first in the transaction, before it reads")

// poolWait is how long another connection is waited for: the program's
// transactions may have all of them, and each may wait for one more.
const poolWait = 100 * time.Millisecond

// anchor is the row of a key that has none of its own, on its way to be locked.
type anchor[Tx any] struct {
	*waiting
	locker *Locker[Tx]
	name   []byte
}

func (a *anchor[Tx]) stmt(name, text string) core.Stmt {
	return a.compile("locks."+name, a.locker.leases.store.texts(text))
}

// hold is one write in the caller's transaction, which makes the row as well.
func (a *anchor[Tx]) hold(ctx context.Context) error {
	if a.wait.now() && a.sql.TryHold != "" {
		var moved, there int
		_, err := a.stmt("try hold", a.sql.TryHold).QueryRow(ctx, a.q, []any{&moved, &there}, a.name)
		switch {
		case err != nil || moved > 0:
			return err
		case there > 0:
			return a.over()
		}
		// It is not there, or not yet committed: then the insert has to wait.
	}
	return a.until(ctx, !a.sql.HoldBounds, func(bound time.Duration) error {
		_, err := a.stmt("hold", a.sql.Hold).Exec(ctx, a.q, a.name, a.sql.Bound(bound))
		return err
	})
}

// lock locks a row that was committed before, if it can be. A locking read of
// one that is not there locks the gap, in which two transactions wait for each
// other's insert, also of another key, and which keeps the process's own other
// connections from inserting it.
func (a *anchor[Tx]) lock(ctx context.Context) error {
	seen := a.locker.leases.store.seen
	there := seen.has(a.name)
	if !there {
		there = a.make(ctx) == nil
	}
	for {
		// An insert cannot answer at once.
		if there || a.wait.now() {
			var token, granted int64
			found, err := a.one(ctx, a.locker.leases.store.texts(a.sql.Lock), func(text string) (bool, error) {
				return a.compile("locks.lock", text).QueryRow(ctx, a.q, []any{&token, &granted}, a.name)
			})
			if err != nil {
				return err
			}
			if found {
				seen.add(a.name)
				return a.move(ctx, token, granted)
			}
		}
		// The reaper has removed it, or there was no connection to make it on.
		err := a.insert(ctx, a.q)
		if a.classify(err) == dialect.Busy && a.locker.access.Alive(ctx, a.q) == nil {
			// Somebody else has it, and the transaction outlived the wait.
			if err = nil; a.wait.mode != untilDone {
				err = a.over()
			}
		}
		if err != nil {
			return err
		}
		there = true
	}
}

// move moves the row that is locked, unless the transaction's snapshot is older
// than what the last holder wrote. Where it has none yet, the read fixes one that
// is as new as the lock. A row that it does not show is younger than it, but if
// nobody has held that yet, nothing can be missed.
func (a *anchor[Tx]) move(ctx context.Context, token, granted int64) error {
	var shown int64
	found, err := a.stmt("snapshot", a.sql.Find).QueryRow(ctx, a.q, []any{&shown}, a.name)
	switch {
	case err != nil:
		return err
	case found && shown != token, !found && granted != 0:
		return &holdfast.RetryError{Attempts: 1, Err: errOldSnapshot}
	}
	_, err = a.stmt("move", a.sql.Move).Exec(ctx, a.q, a.name)
	return err
}

// make makes the row on a connection of the pool, unless it is there.
func (a *anchor[Tx]) make(ctx context.Context) error {
	found := false
	err := onPool(ctx, a.locker, poolWait, "", func(q core.Querier) (err error) {
		var token int64
		found, err = a.stmt("find", a.sql.Find).QueryRow(ctx, q, []any{&token}, a.name)
		return err
	})
	if err != nil || found {
		return err
	}
	// Given a setting, a connection on which something failed is closed.
	before := ""
	if a.sql.MakeBound.Before != nil {
		before = a.sql.MakeBound.Before(time.Second)
	}
	return onPool(ctx, a.locker, poolWait, before, func(q core.Querier) error {
		_, err := a.stmt("make", a.sql.Make).Exec(ctx, q, a.name)
		if before != "" && err == nil {
			_, err = core.Stmt{Name: "unset", Text: a.sql.MakeBound.After}.Exec(ctx, q)
		}
		return err
	})
}

// onPool runs f, once a connection was to be had in time.
func onPool[Tx any](ctx context.Context, l *Locker[Tx], most time.Duration, before string, f func(q core.Querier) error) error {
	acquire, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(most, cancel)
	defer late.Stop()
	return l.access.OnConn(acquire, before, func(q core.Querier) error {
		if !late.Stop() {
			return context.Cause(acquire)
		}
		defer late.Reset(most) // that one may be dead
		return f(q)
	})
}

// insert makes the row in the caller's transaction.
func (a *anchor[Tx]) insert(ctx context.Context, q core.Querier) error {
	undo, err := a.sql.MakeBound.Change(ctx, q, time.Second)
	if err != nil {
		return err
	}
	_, err = a.stmt("insert", a.sql.Make).Exec(ctx, q, a.name)
	if undo.Text == "" {
		return err
	}
	cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdfast.CleanupTimeout)
	defer cancel()
	if _, undone := undo.Exec(cleanup, q); undone != nil && err == nil {
		err = undone
	}
	return err
}

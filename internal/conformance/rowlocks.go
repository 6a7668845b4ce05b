package conformance

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// RowLocks is the suite of the locks that end with the caller's transaction.
func RowLocks[Tx any](t *testing.T, h Handle[Tx]) {
	for name, f := range map[string]func(*Env[Tx]){
		"KeyModes":             keyModes[Tx],
		"KeyInput":             keyInput[Tx],
		"KeyNoLostUpdate":      keyNoLostUpdate[Tx],
		"KeyOldSnapshot":       keyOldSnapshot[Tx],
		"KeyNewAndOld":         keyNewAndOldSnapshot[Tx],
		"KeySnapshotIsolation": keySnapshotIsolation[Tx],
		"KeyManyOnOneNew":      keyManyOnOneNew[Tx],
		"KeyReaped":            keyReaped[Tx],
		"KeyDeadlock":          keyDeadlock[Tx],
		"KeyGone":              keyGone[Tx],
		"KeyCancelled":         keyCancelled[Tx],
		"KeySettings":          keySettings[Tx],
		"RowModes":             rowModes[Tx],
		"RowTransfers":         rowTransfers[Tx],
		"RowIsTheLast":         rowIsTheLast[Tx],
		"RowKeys":              rowKeys[Tx],
		"RowTablesAreChecked":  rowTablesAreChecked[Tx],
		"NextOrder":            nextOrder[Tx],
		"NextLeavesOut":        nextLeavesOut[Tx],
		"NextIsTheLast":        nextIsTheLast[Tx],
		"NextDrain":            nextDrain[Tx],
		"NextCrash":            nextCrash[Tx],
		"NextInput":            nextInput[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, h, f)
		})
	}
}

// Locker opens a locker on the environment's handle; lockers do not know of
// each other, as in two processes.
func (e *Env[Tx]) Locker() *sqllock.Locker[Tx] {
	e.Helper()
	l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(e.Ctx)); err != nil {
			e.Errorf("closing the locker: %v", err)
		}
	})
	return l
}

// levels are the isolation levels that the engine's drivers take.
func (e *Env[Tx]) levels() []sql.IsolationLevel {
	if e.Engine == dbtest.SQLite {
		return []sql.IsolationLevel{sql.LevelDefault}
	}
	return []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// lockHeld holds key in a transaction of its own until release is called.
func (e *Env[Tx]) lockHeld(l *sqllock.Locker[Tx], key string) (release func()) {
	e.Helper()
	tx := e.begin(sql.LevelDefault)
	if err := l.LockTx(e.Ctx, tx, key, sqllock.UntilDone); err != nil {
		e.Fatal(err)
	}
	return sync.OnceFunc(func() { e.end(tx, true) })
}

// counter makes a table with one number in it.
func (e *Env[Tx]) counter() {
	e.Helper()
	e.Must(`CREATE TABLE counter (n INT NOT NULL)`)
	e.Must(`INSERT INTO counter VALUES (0)`)
}

// read reads the number with a plain SELECT.
func (e *Env[Tx]) read(tx Tx) (n int, err error) {
	q, err := e.DB.Access().Join(tx)
	if err != nil {
		return 0, err
	}
	rows, err := q.Query(e.Ctx, `SELECT n FROM counter`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&n)
	}
	return n, errors.Join(err, rows.Err())
}

// increment is the read-modify-write that loses updates unless it is alone.
func (e *Env[Tx]) increment(tx Tx) error {
	n, err := e.read(tx)
	if err != nil {
		return err
	}
	_, err = e.Exec(e.Ctx, tx, `UPDATE counter SET n = $1`, n+1)
	return err
}

// keyModes: the ways to wait for a key that another transaction holds, after
// each of which the transaction goes on.
func keyModes[Tx any](e *Env[Tx]) {
	a, b := e.Locker(), e.Locker()
	for _, key := range []string{"new", "old"} { // at first nobody has committed the key's row
		release := e.lockHeld(a, key)
		tx := e.begin(sql.LevelDefault)
		if e.DB.Capabilities().RowLocks {
			if err := e.Effect(e.Ctx, tx, key); err != nil {
				e.Error(err)
			}
		}
		for _, wait := range []sqllock.Wait{sqllock.NoWait, sqllock.SkipLocked} {
			start := time.Now()
			err := b.LockTx(e.Ctx, tx, key, wait)
			var n *sqllock.NotNowError
			if !errors.Is(err, sqllock.ErrNotNow) || !errors.As(err, &n) || n.Key != key {
				e.Errorf("%s: got %v, want not now", key, err)
			}
			e.Logf("%s: %v after %v", key, err, time.Since(start).Round(time.Millisecond))
		}
		for _, d := range []time.Duration{0, 70 * time.Millisecond, 900 * time.Millisecond} {
			start := time.Now()
			err := b.LockTx(e.Ctx, tx, key, sqllock.AtMost(d))
			waited := time.Since(start)
			var n *sqllock.TimeoutError
			if !errors.Is(err, sqllock.ErrTimeout) || !errors.As(err, &n) || n.Key != key || n.Waited < d || waited < d {
				e.Errorf("%s: got %v, want a timeout", key, err)
			}
			e.Logf("%s: at most %v: %v after %v", key, d, err, waited.Round(time.Millisecond))
		}
		var later sync.WaitGroup
		later.Go(func() {
			time.Sleep(1200 * time.Millisecond) // past more than one statement of InnoDB's
			release()
		})
		wait := sqllock.UntilDone
		if key == "old" {
			wait = sqllock.AtMost(30 * time.Second)
		}
		start := time.Now()
		if err := b.LockTx(e.Ctx, tx, key, wait); err != nil {
			e.Error(err)
		}
		if waited := time.Since(start); waited < time.Second {
			e.Errorf("it was granted after %v, while it was held", waited)
		}
		later.Wait()
		if err := b.LockTx(e.Ctx, tx, key, sqllock.NoWait); err != nil {
			e.Errorf("again in the same transaction: %v", err)
		}
		if err := e.Effect(e.Ctx, tx, key); err != nil {
			e.Error(err)
		}
		e.end(tx, true)
		want := 1
		if e.DB.Capabilities().RowLocks {
			want = 2
		}
		if n := e.Effects(key); n != want {
			e.Errorf("%d effects, want %d: before the waits that ended, and after", n, want)
		}
	}
	// Free keys, and a key of another kind, are nobody's.
	lease, err := a.Acquire(e.Ctx, "lease")
	if err != nil {
		e.Fatal(err)
	}
	for _, wait := range []sqllock.Wait{sqllock.NoWait, sqllock.SkipLocked, sqllock.AtMost(0), sqllock.AtMost(time.Second), sqllock.UntilDone} {
		for _, key := range append(Keys(), "lease") {
			tx := e.begin(sql.LevelDefault)
			if err := b.LockTx(e.Ctx, tx, key, wait); err != nil {
				e.Errorf("%q, %+v: %v", key, wait, err)
			}
			e.end(tx, true)
		}
	}
	if err := lease.Release(e.Ctx); err != nil {
		e.Error(err)
	}
	keys := map[string]bool{"lease": true, "new": true, "old": true}
	for _, k := range Keys() {
		keys[k] = true
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_locks`); n != len(keys)+1 {
		e.Errorf("%d rows of %d keys and a lease", n, len(keys))
	}
}

func keyInput[Tx any](e *Env[Tx]) {
	l := e.Locker()
	tx := e.begin(sql.LevelDefault)
	for _, c := range []struct {
		key  string
		wait sqllock.Wait
	}{
		{"", sqllock.UntilDone},
		{strings.Repeat("k", sqllock.MaxKey+1), sqllock.UntilDone},
		{"k", sqllock.AtMost(-1)},
		{"k", sqllock.AtMost(sqllock.MaxWait + 1)},
	} {
		if err := l.LockTx(e.Ctx, tx, c.key, c.wait); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%.20q, %+v: %v", c.key, c.wait, err)
		}
	}
	var none Tx
	if err := l.LockTx(e.Ctx, none, "k", sqllock.UntilDone); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("a nil transaction: %v", err)
	}
	// None of these has touched the transaction.
	if err := l.LockTx(e.Ctx, tx, strings.Repeat("k", sqllock.MaxKey), sqllock.UntilDone); err != nil {
		e.Error(err)
	}
	if err := e.Effect(e.Ctx, tx, "k"); err != nil {
		e.Error(err)
	}
	e.end(tx, true)
	e.WantOnce("k")
}

// keyManyOnOneNew: half of the transactions that come together at new keys roll
// back, which is where inserts of one's own wait for each other.
func keyManyOnOneNew[Tx any](e *Env[Tx]) {
	l := e.Locker()
	back := errors.New("back")
	for _, key := range []string{"a", "b", "c"} {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				err := e.DB.InTx(e.Ctx, holdfast.TxOptions{}, func(ctx context.Context, tx Tx) error {
					if err := l.LockTx(ctx, tx, key, sqllock.UntilDone); err != nil {
						return err
					}
					if i%2 == 0 {
						return back
					}
					return e.Effect(ctx, tx, key)
				})
				if err != nil && !errors.Is(err, back) {
					e.Errorf("%s: %v", key, err)
				}
			})
		}
		wg.Wait()
		if n := e.Effects(key); n != 8 {
			e.Errorf("%d effects of 8 transactions", n)
		}
	}
}

// keyReaped: the row of a key that this process knows is deleted.
func keyReaped[Tx any](e *Env[Tx]) {
	l, m := e.Locker(), e.Locker()
	e.counter()
	for _, wait := range []sqllock.Wait{sqllock.NoWait, sqllock.AtMost(time.Second), sqllock.UntilDone} {
		for _, level := range e.levels() {
			for range 2 {
				tx := e.begin(level)
				if err := l.LockTx(e.Ctx, tx, "a", wait); err != nil {
					e.Errorf("%v, %+v: %v", level, wait, err)
				}
				second := e.begin(level)
				if err := m.LockTx(e.Ctx, second, "a", sqllock.NoWait); !errors.Is(err, sqllock.ErrNotNow) {
					e.Errorf("%v, %+v: a second holder: %v", level, wait, err)
				}
				e.end(second, false)
				e.end(tx, true)
			}
			e.Must(`DELETE FROM holdfast_locks`)
		}
	}
	// And while it is wanted.
	stop := make(chan struct{})
	var reaper, wg sync.WaitGroup
	reaper.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_, _ = e.SQL.ExecContext(e.Ctx, `DELETE FROM holdfast_locks`)
			}
		}
	})
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				err := e.DB.InTx(e.Ctx, holdfast.TxOptions{Attempts: 1000}, func(ctx context.Context, tx Tx) error {
					on := l
					if i%2 == 0 {
						on = m
					}
					if err := on.LockTx(ctx, tx, "a", sqllock.UntilDone); err != nil {
						return err
					}
					return e.increment(tx)
				})
				if err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	reaper.Wait()
	if n := e.Int(`SELECT n FROM counter`); n != 80 {
		e.Errorf("%d of 80 increments are there", n)
	}
}

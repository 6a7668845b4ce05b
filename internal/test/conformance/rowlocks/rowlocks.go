package rowlocks

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// Suite is the suite of the locks that end with the caller's transaction.
func Suite[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
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
		"GivenUp":              givenUp[Tx],
		"KeySettings":          keySettings[Tx],
		"Blockers":             namesBlockers[Tx],
		"BlockersUnseen":       namesNobodyUnseen[Tx],
		"RowModes":             rowModes[Tx],
		"RowTransfers":         rowTransfers[Tx],
		"RowIsTheLast":         rowIsTheLast[Tx],
		"RowKeys":              rowKeys[Tx],
		"RowForeignKeys":       rowForeignKeys[Tx],
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
			run(t, h, f)
		})
	}
}

// lockHeld holds key in a separate transaction until release is called.
func (e *env[Tx]) lockHeld(l *rowlock.Locker[Tx], key string) (release func()) {
	e.Helper()
	tx := e.BeginTx(sql.LevelDefault)
	if err := l.LockTx(e.Ctx, tx, key, holdfast.Forever); err != nil {
		e.Fatal(err)
	}
	return sync.OnceFunc(func() { e.EndTx(tx, true) })
}

// counter makes a table with one number in it.
func (e *env[Tx]) counter() {
	e.Helper()
	e.Must(`CREATE TABLE counter (n INT NOT NULL)`)
	e.Must(`INSERT INTO counter VALUES (0)`)
}

// read reads the number with a plain SELECT.
func (e *env[Tx]) read(tx Tx) (n int, err error) {
	q, err := access.Of(e.DB).Join(tx)
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

// increment is a read-modify-write that loses updates unless it runs alone.
func (e *env[Tx]) increment(tx Tx) error {
	n, err := e.read(tx)
	if err != nil {
		return err
	}
	_, err = e.Exec(e.Ctx, tx, `UPDATE counter SET n = $1`, n+1)
	return err
}

// keyModes checks the ways to wait for a key that another transaction holds. After each of them
// the transaction continues.
func keyModes[Tx any](e *env[Tx]) {
	a, b := e.RowLocker(), e.RowLocker()
	for _, key := range []string{"new", "old"} { // at first no transaction has committed the key's row
		release := e.lockHeld(a, key)
		tx := e.BeginTx(sql.LevelDefault)
		if e.DB.Capabilities().RowLocks {
			if err := e.Effect(e.Ctx, tx, key); err != nil {
				e.Error(err)
			}
		}
		for range 2 {
			start := time.Now()
			err := b.LockTx(e.Ctx, tx, key, holdfast.NoWait)
			var n *rowlock.LockNotAvailableError
			if !errors.Is(err, rowlock.ErrLockNotAvailable) || !errors.As(err, &n) || n.Key != key {
				e.Errorf("%s: got %v, want not now", key, err)
			}
			e.Logf("%s: %v after %v", key, err, time.Since(start).Round(time.Millisecond))
		}
		for _, d := range []time.Duration{time.Millisecond, 70 * time.Millisecond, 900 * time.Millisecond} {
			start := time.Now()
			err := b.LockTx(e.Ctx, tx, key, d)
			waited := time.Since(start)
			var n *rowlock.TimeoutError
			if !errors.Is(err, rowlock.ErrTimeout) || !errors.As(err, &n) || n.Key != key || n.Waited < d || waited < d {
				e.Errorf("%s: got %v, want a timeout", key, err)
			}
			e.Logf("%s: at most %v: %v after %v", key, d, err, waited.Round(time.Millisecond))
		}
		var later sync.WaitGroup
		start := time.Now()
		later.Go(func() {
			time.Sleep(1200 * time.Millisecond) // longer than one statement of InnoDB waits
			release()
		})
		wait := holdfast.Forever
		if key == "old" {
			wait = 30 * time.Second
		}
		if err := b.LockTx(e.Ctx, tx, key, wait); err != nil {
			e.Error(err)
		}
		if waited := time.Since(start); waited < time.Second {
			e.Errorf("it was granted after %v, while it was held", waited)
		}
		later.Wait()
		if err := b.LockTx(e.Ctx, tx, key, holdfast.NoWait); err != nil {
			e.Errorf("again in the same transaction: %v", err)
		}
		if err := e.Effect(e.Ctx, tx, key); err != nil {
			e.Error(err)
		}
		e.EndTx(tx, true)
		want := 1
		if e.DB.Capabilities().RowLocks {
			want = 2
		}
		if n := e.Effects(key); n != want {
			e.Errorf("%d effects, want %d: before the waits that ended, and after", n, want)
		}
	}
	// Free keys, and a key of another kind, do not conflict.
	lease, err := e.Locker().Acquire(e.Ctx, "lease")
	if err != nil {
		e.Fatal(err)
	}
	for _, wait := range []time.Duration{holdfast.NoWait, 0, time.Second, holdfast.Forever} {
		for _, key := range append(conformance.Keys(), "lease") {
			tx := e.BeginTx(sql.LevelDefault)
			if err := b.LockTx(e.Ctx, tx, key, wait); err != nil {
				e.Errorf("%q, %+v: %v", key, wait, err)
			}
			e.EndTx(tx, true)
		}
	}
	if err := lease.Release(e.Ctx); err != nil {
		e.Error(err)
	}
	keys := map[string]bool{"lease": true, "new": true, "old": true}
	for _, k := range conformance.Keys() {
		keys[k] = true
	}
	if n := e.Int(`SELECT COUNT(*) FROM holdfast_locks`); n != len(keys)+1 {
		e.Errorf("%d rows of %d keys and a lease", n, len(keys))
	}
}

func keyInput[Tx any](e *env[Tx]) {
	l := e.RowLocker()
	tx := e.BeginTx(sql.LevelDefault)
	for _, c := range []struct {
		key  string
		wait time.Duration
	}{
		{"", holdfast.Forever},
		{strings.Repeat("k", rowlock.MaxKey+1), holdfast.Forever},
		{"k", -3},
		{"k", 30},
		{"k", 24*time.Hour + 1},
	} {
		if err := l.LockTx(e.Ctx, tx, c.key, c.wait); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("%.20q, %+v: %v", c.key, c.wait, err)
		}
	}
	var none Tx
	if err := l.LockTx(e.Ctx, none, "k", holdfast.Forever); !errors.Is(err, holdfast.ErrNoTx) {
		e.Errorf("a nil transaction: %v", err)
	}
	// None of these calls has changed the transaction.
	if err := l.LockTx(e.Ctx, tx, strings.Repeat("k", rowlock.MaxKey), holdfast.Forever); err != nil {
		e.Error(err)
	}
	if err := e.Effect(e.Ctx, tx, "k"); err != nil {
		e.Error(err)
	}
	e.EndTx(tx, true)
	e.WantOnce("k")
}

// keyManyOnOneNew starts many transactions on new keys at once. Half of them roll back, which is
// where concurrent inserts of one key wait for each other.
func keyManyOnOneNew[Tx any](e *env[Tx]) {
	l := e.RowLocker()
	back := errors.New("back")
	for _, key := range []string{"a", "b", "c"} {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					if err := l.LockTx(ctx, tx, key, holdfast.Forever); err != nil {
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

// keyReaped deletes the row of a key that this process knows.
func keyReaped[Tx any](e *env[Tx]) {
	l, m := e.RowLocker(), e.RowLocker()
	e.counter()
	for _, wait := range []time.Duration{holdfast.NoWait, time.Second, holdfast.Forever} {
		for _, level := range e.Levels() {
			for range 2 {
				tx := e.BeginTx(level)
				if err := l.LockTx(e.Ctx, tx, "a", wait); err != nil {
					e.Errorf("%v, %+v: %v", level, wait, err)
				}
				second := e.BeginTx(level)
				if err := m.LockTx(e.Ctx, second, "a", holdfast.NoWait); !errors.Is(err, rowlock.ErrLockNotAvailable) {
					e.Errorf("%v, %+v: a second holder: %v", level, wait, err)
				}
				e.EndTx(second, false)
				e.EndTx(tx, true)
			}
			e.Must(`DELETE FROM holdfast_locks`)
		}
	}
	// The same while calls want the key: after each call that had it, so that they get on however
	// slow an engine is.
	had := make(chan struct{}, 80)
	var reaper, wg sync.WaitGroup
	reaper.Go(func() {
		for range had {
			_, _ = e.SQL.ExecContext(e.Ctx, `DELETE FROM holdfast_locks`)
		}
	})
	for i := range 8 {
		wg.Go(func() {
			for range 10 {
				err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					on := l
					if i%2 == 0 {
						on = m
					}
					if err := on.LockTx(ctx, tx, "a", holdfast.Forever); err != nil {
						return err
					}
					return e.increment(tx)
				}, holdfast.TxOptions{Attempts: 1000})
				if err != nil {
					e.Error(err)
				}
				had <- struct{}{}
			}
		})
	}
	wg.Wait()
	close(had)
	reaper.Wait()
	if n := e.Int(`SELECT n FROM counter`); n != 80 {
		e.Errorf("%d of 80 increments are there", n)
	}
}

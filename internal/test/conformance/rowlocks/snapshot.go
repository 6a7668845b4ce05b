package rowlocks

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock/rowlock"
)

// keyNoLostUpdate runs a read-modify-write with plain statements under the lock.
func keyNoLostUpdate[Tx any](e *env[Tx]) {
	e.counter()
	lockers := []*rowlock.Locker[Tx]{e.RowLocker(), e.RowLocker()}
	const workers, times = 16, 20
	want := 0
	for _, level := range e.Levels() {
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() {
				for range times {
					err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
						if err := lockers[i%2].LockTx(ctx, tx, "counter", holdfast.Forever); err != nil {
							return err
						}
						return e.increment(tx)
					}, holdfast.TxOptions{Isolation: level, Attempts: 10_000})
					if err != nil {
						e.Errorf("%v: %v", level, err)
					}
				}
			})
		}
		wg.Wait()
		want += workers * times
		if n := e.Int(`SELECT n FROM counter`); n != want {
			e.Errorf("%v: %d of %d increments are there", level, n, want)
		}
	}
}

// refund makes one effect, unless a plain read shows that it exists.
func (e *env[Tx]) refund(tx Tx, key string) error {
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		return err
	}
	rows, err := q.Query(e.Ctx, e.Rebind(`SELECT who FROM effects WHERE k = $1`), []byte(key))
	if err != nil {
		return err
	}
	there := rows.Next()
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || there {
		return err
	}
	return e.Effect(e.Ctx, tx, key)
}

// keyOldSnapshot lets one transaction read first; then another holds the key and commits; then
// the first locks the key. The naive lock is granted and executes the effect twice or loses an
// update.
func keyOldSnapshot[Tx any](e *env[Tx]) {
	e.counter()
	e.Must(`INSERT INTO holdfast_locks (owner, name, token, holder, granted_at, expires_at) VALUES ('', $1, 1, '', 0, 0)`, []byte("rnaive"))
	l := e.RowLocker()
	naive := func(tx Tx) error {
		_, err := e.Exec(e.Ctx, tx, `SELECT 1 FROM holdfast_locks WHERE owner = '' AND name = $1 FOR UPDATE`, []byte("rnaive"))
		return err
	}
	lock := func(tx Tx) error { return l.LockTx(e.Ctx, tx, "k", holdfast.Forever) }
	// race returns the error of lock in the transaction that has read before.
	race := func(level sql.IsolationLevel, lock func(tx Tx) error, work func(tx Tx) error) error {
		tx := e.BeginTx(level)
		if _, err := e.read(tx); err != nil {
			e.Fatal(err)
		}
		other := e.BeginTx(sql.LevelDefault)
		if err := errors.Join(lock(other), work(other)); err != nil {
			e.Fatal(err)
		}
		e.EndTx(other, true)
		if err := lock(tx); err != nil {
			e.WantRolledBack(tx)
			return err
		}
		if err := work(tx); err != nil {
			e.Fatalf("%v: %v", level, err)
		}
		e.EndTx(tx, true)
		return nil
	}
	if e.DB.Capabilities().RowLocks {
		if err := race(sql.LevelRepeatableRead, naive, func(tx Tx) error { return e.refund(tx, "naive") }); err != nil {
			e.Errorf("the naive form: %v", err)
		}
		if n := e.Effects("naive"); n != 2 {
			e.Errorf("the naive form made %d effects: it was to make 2", n)
		}
	}
	if e.StaleWrites() {
		if err := race(sql.LevelRepeatableRead, naive, e.increment); err != nil {
			e.Errorf("the naive form: %v", err)
		}
		if n := e.Int(`SELECT n FROM counter`); n != 1 {
			e.Errorf("the naive form made %d of 2 increments: it was to lose one", n)
		}
	}
	for _, level := range e.Levels() {
		key := level.String()
		err := race(level, lock, func(tx Tx) error { return e.refund(tx, key) })
		// InnoDB's SERIALIZABLE has no snapshot: its reads lock.
		fresh := level == sql.LevelReadCommitted || level == sql.LevelSerializable && e.StaleWrites()
		if fresh && err != nil || !fresh && !errors.Is(err, holdfast.ErrRetry) {
			e.Errorf("%v: %v", level, err)
		}
		e.Logf("%v: %v", level, err)
		e.WantOnce(key)
	}
	// The whole transaction, run again as the error asks.
	e.Must(`UPDATE counter SET n = 0`)
	first := true
	err := e.DB.InTx(e.Ctx, func(_ context.Context, tx Tx) error {
		if _, err := e.read(tx); err != nil {
			return err
		}
		if first {
			first = false
			other := e.BeginTx(sql.LevelDefault)
			if err := errors.Join(lock(other), e.increment(other)); err != nil {
				e.Fatal(err)
			}
			e.EndTx(other, true)
		}
		return errors.Join(lock(tx), e.increment(tx))
	}, holdfast.TxOptions{Isolation: e.Levels()[len(e.Levels())/2]})
	if n := e.Int(`SELECT n FROM counter`); err != nil || n != 2 {
		e.Errorf("%d of 2 increments: %v", n, err)
	}
}

// keyNewAndOldSnapshot uses a snapshot that is older than the key's row. If no call has held the
// key, the lock is granted; otherwise the snapshot may miss a commit. InnoDB without stale writes
// refuses the row itself, which another connection has made.
func keyNewAndOldSnapshot[Tx any](e *env[Tx]) {
	e.counter()
	l := e.RowLocker()
	strict := e.InnoDB() && !e.StaleWrites()
	for _, level := range e.Levels() {
		for _, c := range []struct {
			name         string
			held, commit bool
		}{{"never held", false, false}, {"rolled back", true, false}, {"committed", true, true}} {
			key := level.String() + c.name
			tx := e.BeginTx(level)
			if _, err := e.read(tx); err != nil {
				e.Fatal(err)
			}
			if c.held {
				other := e.BeginTx(sql.LevelDefault)
				if err := l.LockTx(e.Ctx, other, key, holdfast.Forever); err != nil {
					e.Fatal(err)
				}
				e.EndTx(other, c.commit)
			}
			err := l.LockTx(e.Ctx, tx, key, holdfast.Forever)
			old := c.commit && (level != sql.LevelSerializable || !e.InnoDB()) || strict
			if old && level != sql.LevelReadCommitted {
				if !errors.Is(err, holdfast.ErrRetry) {
					e.Errorf("%v, %s: got %v, want a retry", level, c.name, err)
				}
				e.WantRolledBack(tx)
				continue
			}
			if err != nil {
				e.Errorf("%v, %s: %v", level, c.name, err)
			}
			e.EndTx(tx, true)
		}
	}
}

// keySnapshotIsolation checks MariaDB with innodb_snapshot_isolation, its default from 11.6. It
// refuses old snapshots with 1020, and also, once, a key's new row that another connection
// inserted.
func keySnapshotIsolation[Tx any](e *env[Tx]) {
	if e.Engine != dbtest.MariaDB {
		return // the other engines have no such setting
	}
	strict := *e
	strict.Pool = e.Handle.Open(e, dbtest.With(e.DSN, "innodb_snapshot_isolation=ON"))
	strict.counter()
	l := strict.RowLocker()
	for attempt := range 2 {
		tx := strict.BeginTx(sql.LevelRepeatableRead)
		if _, err := strict.read(tx); err != nil {
			e.Fatal(err)
		}
		err := l.LockTx(e.Ctx, tx, "new", holdfast.Forever)
		if err != nil && (attempt > 0 || !errors.Is(err, holdfast.ErrRetry)) {
			e.Errorf("attempt %d: %v", attempt, err)
		}
		e.Logf("attempt %d: %v", attempt, err)
		if err != nil {
			strict.WantRolledBack(tx)
			continue
		}
		strict.EndTx(tx, true)
	}
	tx := strict.BeginTx(sql.LevelRepeatableRead)
	if _, err := strict.read(tx); err != nil {
		e.Fatal(err)
	}
	strict.lockHeld(l, "new")()
	if err := l.LockTx(e.Ctx, tx, "new", holdfast.Forever); !errors.Is(err, holdfast.ErrRetry) {
		e.Errorf("an old snapshot: %v", err)
	}
	strict.WantRolledBack(tx)
}

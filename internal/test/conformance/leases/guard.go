package leases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// leaseOldSnapshot checks that the guard refuses a transaction whose snapshot is older than the
// grant, because it would read old data. The naive guard locks the row and compares nothing; it
// passes on InnoDB and reads a stale balance.
func leaseOldSnapshot[Tx any](e *env[Tx]) {
	e.Must(`CREATE TABLE lease_accounts (id INT PRIMARY KEY, balance INT NOT NULL)`)
	naiveGuard := `SELECT 1 FROM holdfast_locks WHERE owner = '' AND name = $1 AND token = $2 LOCK IN SHARE MODE`
	switch e.Engine {
	case dbtest.Postgres:
		naiveGuard = `SELECT 1 FROM holdfast_locks WHERE owner = '' AND name = $1 AND token = $2 FOR SHARE`
	case dbtest.TiDB:
		naiveGuard = `SELECT 1 FROM holdfast_locks WHERE owner = '' AND name = $1 AND token = $2 FOR UPDATE`
	case dbtest.SQLite: // SQLite has no other way to lock
		naiveGuard = `UPDATE holdfast_locks SET attempt = attempt WHERE owner = '' AND name = $1 AND token = $2 RETURNING 1`
	}
	for id, level := range slices.Concat(e.leaseLevels(), e.leaseLevels()) {
		if level == sql.LevelSerializable && e.InnoDB() {
			continue // its reads lock: no other session can change the balance
		}
		used := id < len(e.leaseLevels())                                    // the snapshot contains an earlier term of the key
		old := level >= sql.LevelRepeatableRead || e.Engine == dbtest.SQLite // the level keeps a snapshot
		e.Must(`INSERT INTO lease_accounts VALUES ($1, 100)`, id)
		balance := func(tx Tx) int {
			n, _, err := e.ReadInt(tx, `SELECT balance FROM lease_accounts WHERE id = $1`, id)
			if err != nil {
				e.Fatalf("at %v: %v", level, err)
			}
			return n
		}
		key := conformance.Numbered("old snapshot", id)
		first, second := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
		if used {
			e.MustRelease(e.MustAcquire(first, key))
		}
		mine, naive := e.BeginTx(level), e.BeginTx(level)
		if balance(mine) != 100 || balance(naive) != 100 {
			e.Fatal("the account is not as it was made")
		}
		lease := e.MustAcquire(first, key)
		e.guarded(first, level, lease.Term(), func(tx Tx) {
			if _, err := e.Exec(e.Ctx, tx, `UPDATE lease_accounts SET balance = 0 WHERE id = $1`, id); err != nil {
				e.Fatal(err)
			}
		})
		e.MustRelease(lease)
		lease = e.MustAcquire(second, key)

		_, found, err := e.ReadInt(naive, naiveGuard, leaseRow(key), lease.Token())
		switch {
		case e.StaleWrites() && old:
			if err != nil || !found || balance(naive) != 100 {
				e.Errorf("at %v the naive guard should have passed, and read what was before: %v, %v", level, found, err)
			}
		case old && found:
			e.Errorf("at %v the engine should not have found a later term in the old snapshot: %v", level, err)
		}
		_ = e.End(e.Ctx, naive, false)

		err = second.Guard(e.Ctx, mine, lease.Term())
		switch {
		case old:
			if !errors.Is(err, holdfast.ErrRetry) || !e.DB.Retryable(err) {
				e.Errorf("an old snapshot at %v, key used before: %v: got %v, want ErrRetry", level, used, err)
			}
			e.WantRolledBack(mine)
		case err != nil || balance(mine) != 0:
			e.Errorf("at %v a statement reads what is there now: %v", level, err)
		default:
			e.EndTx(mine, true)
		}
		e.guarded(second, level, lease.Term(), func(tx Tx) {
			if n := balance(tx); n != 0 {
				e.Errorf("at %v a guarded transaction reads %d", level, n)
			}
		})
		e.MustRelease(lease)
	}
}

// leaseGuardAndRenewal keeps guarded transactions open for longer than the TTL, one at each
// isolation level. They delay only the renewal of their own leases, and no other call acquires
// these locks. A lease that is guarded for a part of its TTL is renewed afterwards. The naive
// renewal is one plain update of all leases; it waits for the first guarded one.
func leaseGuardAndRenewal[Tx any](e *env[Tx]) {
	if e.Engine == dbtest.SQLite {
		dbtest.NotUnderRace(e, "its lease is too short for one writer")
	}
	for ttl := 6 * time.Second; ; ttl *= 2 {
		late := guardAndRenewal(e, ttl)
		if late == nil {
			return
		}
		if ttl > 40*time.Second { // what a guard holds up is late regardless of the TTL
			e.Fatal(late)
		}
	}
}

// guardAndRenewal returns an error if a lease was not renewed in time: a guard held it up, or the
// machine is too slow for the TTL.
func guardAndRenewal[Tx any](e *env[Tx], ttl time.Duration) (late error) {
	const n = 100
	o := sqllock.Options{TTL: ttl}
	l, other := e.LockerWith(o), e.LockerWith(sqllock.Options{})
	take := func(l *sqllock.Locker[Tx], what string, n int) []*sqllock.Lease {
		leases := make([]*sqllock.Lease, n)
		for i := range leases {
			leases[i] = e.MustAcquire(l, conformance.Numbered(what+ttl.String(), 100+i))
		}
		return leases
	}
	guard := func(level sql.IsolationLevel, lease *sqllock.Lease) (tx Tx) {
		for err := holdfast.ErrRetry; err != nil; { // a renewal may come in between
			if !errors.Is(err, holdfast.ErrRetry) {
				e.Fatalf("guard at %v: %v", level, err)
			}
			tx = e.BeginTx(level)
			err = l.Guard(e.Ctx, tx, lease.Term())
		}
		return tx
	}
	levels := e.leaseLevels()
	if !e.DB.Capabilities().RowLocks {
		levels = nil // the engine allows only one guarded transaction
	}
	leases := take(l, "renewal ", n)
	open := make([]Tx, len(levels))
	for i, level := range levels {
		open[i] = guard(level, leases[i])
	}
	brief, begun := take(l, "brief ", 1)[0], time.Now()
	tx := guard(sql.LevelDefault, brief)
	time.Sleep(time.Until(begun.Add(ttl / 2)))
	e.wantHeld(other, brief.Key())
	e.EndTx(tx, true)
	time.Sleep(time.Until(begun.Add(ttl + ttl/2)))

	for _, lease := range append(leases[len(levels):], brief) {
		late = context.Cause(lease.Context())
		if late == nil && e.rowInt(lease.Key(), `CASE WHEN attempt IS NULL OR expires_at <= {now} THEN 1 ELSE 0 END`) != 0 {
			late = errors.New("the row of " + lease.Key() + " has expired")
		}
		if late != nil {
			for _, tx := range open {
				e.EndTx(tx, false)
			}
			return fmt.Errorf("a lease of %v was not renewed in time: %w", ttl, late)
		}
	}
	for i, level := range levels {
		e.WantEnded(leases[i], sqllock.ErrLost)
		e.expired(leases[i].Key())
		if held := e.wantHeld(other, leases[i].Key()); held.Remaining != 0 || held.Token != leases[i].Token() {
			e.Errorf("guarded at %v: %+v", level, held)
		}
	}
	if len(levels) > 0 {
		e.naiveRenewalWaits(leases)
	}
	for i, tx := range open {
		key := leases[i].Key()
		if err := e.Effect(e.Ctx, tx, key); err != nil {
			e.Error(err)
		}
		e.EndTx(tx, true) // for no other call acquired the lock
		e.WantOnce(key)
		if next := e.wantFree(other, key); next.Token() <= leases[i].Token() {
			e.Errorf("token %d after %d", next.Token(), leases[i].Token())
		}
	}
	return nil
}

func (e *env[Tx]) naiveRenewalWaits(leases []*sqllock.Lease) {
	e.Helper()
	conn, err := e.SQL.Conn(e.Ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	bound := `SET SESSION innodb_lock_wait_timeout = 1`
	if e.Engine == dbtest.Postgres {
		bound = `SET lock_timeout = '1s'`
	}
	args := make([]any, len(leases))
	for i, l := range leases {
		args[i] = leaseRow(l.Key())
	}
	if _, err := conn.ExecContext(e.Ctx, bound); err != nil {
		e.Fatal(err)
	}
	_, err = conn.ExecContext(e.Ctx, e.Rebind(`UPDATE holdfast_locks SET expires_at = expires_at + 1 WHERE owner = '' AND name IN (`+dialect.Params(len(args))+`)`), args...)
	if !e.DB.Retryable(err) {
		e.Errorf("the naive renewal should have waited for the guarded rows in vain: %v", err)
	}
}

// leaseTryAnswers tries an expired lock that an open guarded transaction still holds. The try
// returns while the transaction is open, also from a Locker that never saw the key. The naive
// takeover waits.
func leaseTryAnswers[Tx any](e *env[Tx]) {
	const key = "try answers"
	l := e.LockerWith(sqllock.Options{Holder: "the guarded one"})
	lease := e.MustAcquire(l, key, sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	tx := e.BeginTx(sql.LevelDefault)
	if err := l.Guard(e.Ctx, tx, lease.Term()); err != nil {
		e.Fatal(err)
	}
	e.expired(key)
	var longest time.Duration
	for who, locker := range map[string]*sqllock.Locker[Tx]{
		"the same process": l, "one that never saw the key": e.LockerWith(sqllock.Options{}),
	} {
		for range 2 {
			var held *sqllock.HeldError
			took := timed(func() { held = e.wantHeld(locker, key) })
			longest = max(longest, took)
			if held.Remaining != 0 || held.Holder != "the guarded one" || held.Token != lease.Token() {
				e.Errorf("%s was told %+v", who, held)
			}
		}
	}
	e.Logf("answered within %v", longest)
	// The naive takeover gets ten times that, and at least a second.
	ctx, cancel := context.WithTimeout(e.Ctx, max(10*longest, time.Second))
	defer cancel()
	_, err := e.SQL.ExecContext(ctx, e.Rebind(e.now(`UPDATE holdfast_locks SET holder = 'naive' WHERE owner = '' AND name = $1 AND expires_at <= {now}`)), leaseRow(key))
	if err == nil {
		e.Error("the naive takeover should have waited for the guarded transaction")
	}
	e.EndTx(tx, true)
	e.MustRelease(e.MustAcquire(l, key))
}

// leaseTryBehindRelease tries a lock while a release waits for a guarded transaction. The try
// still returns. MySQL has one gap: the plain insert of a process that never saw the key
// requests the row in share mode and queues behind the release until the guarded transaction
// ends.
func leaseTryBehindRelease[Tx any](e *env[Tx]) {
	const key = "behind a release"
	l, knows, never := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	lease := e.MustAcquire(l, key)
	e.wantHeld(knows, key)
	tx := e.BeginTx(sql.LevelDefault)
	if err := l.Guard(e.Ctx, tx, lease.Term()); err != nil {
		e.Fatal(err)
	}
	released := make(chan error, 1)
	go func() { released <- lease.Release(e.Ctx) }()
	if e.Engine == dbtest.MySQL {
		e.Eventually("the release waits on the server", func() bool {
			return e.Int(`SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_schema = DATABASE() AND lock_status = 'WAITING' AND lock_data LIKE CONCAT('%0x', HEX($1), '%')`, leaseRow(key)) > 0
		})
	} else {
		time.Sleep(200 * time.Millisecond) // usually the release waits on the server now
	}
	for range 2 {
		e.wantHeld(knows, key)
	}
	ctx, cancel := context.WithTimeout(e.Ctx, time.Second)
	defer cancel()
	if e.Engine != dbtest.MySQL {
		ctx = e.Ctx
	}
	_, err := never.TryAcquire(ctx, key)
	if e.Engine == dbtest.MySQL && !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("the gap is closed, take it out of here: %v", err)
	} else if e.Engine != dbtest.MySQL && !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("a process that never saw the key: %v", err)
	}
	e.EndTx(tx, true)
	<-released // or the release continues in the background
	e.MustRelease(e.MustAcquire(knows, key))
}

// leaseGuardRefusals checks that the guard refuses a term that no longer matches the row, and
// several terms when one of them does not match. The transaction is rolled back.
func leaseGuardRefusals[Tx any](e *env[Tx]) {
	l, other := e.LockerWith(sqllock.Options{}), e.LockerWith(sqllock.Options{})
	refused := func(what string, terms ...sqllock.Term) {
		e.Helper()
		for _, level := range e.leaseLevels() {
			tx := e.BeginTx(level)
			if err := e.Effect(e.Ctx, tx, what); err != nil {
				e.Fatal(err)
			}
			err := l.Guard(e.Ctx, tx, terms...)
			var lost *sqllock.LostError
			if !errors.As(err, &lost) || !errors.Is(err, sqllock.ErrLost) || lost.Key == "" || lost.Token == 0 || e.DB.Retryable(err) {
				e.Errorf("%s at %v: got %v, want a LostError", what, level, err)
			}
			_, _ = e.Exec(e.Ctx, tx, `INSERT INTO effects (k, who) VALUES ($1, 'after')`, []byte(what))
			e.WantRolledBack(tx)
		}
		if n := e.Effects(what); n != 0 {
			e.Errorf("%s: %d effects stand", what, n)
		}
	}
	good := e.MustAcquire(l, "refusals good")
	short := e.MustAcquire(l, "refusals", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
	e.WantEnded(short, sqllock.ErrLost)
	e.expired("refusals")
	// An expired lease that no other call acquired may still write.
	e.guarded(l, sql.LevelDefault, short.Term(), func(Tx) {})
	next := e.MustAcquire(other, "refusals")
	refused("granted to another", short.Term())
	refused("one of several", good.Term(), short.Term())
	refused("a key that never was", l.Term("refusals never", 1))
	refused("a later token", l.Term("refusals", next.Token()+1))
	// A guard works with the Locker of another process, by key and token.
	e.guarded(l, sql.LevelDefault, l.Term(next.Key(), next.Token()), func(Tx) {})
	e.MustRelease(next)
	refused("released", next.Term())

	// Two transactions that name their terms in opposite orders do not deadlock.
	a, b := e.MustAcquire(l, "refusals a"), e.MustAcquire(l, "refusals b")
	terms := []sqllock.Term{a.Term(), b.Term()}
	var wg sync.WaitGroup
	for i := range 8 {
		mine := slices.Clone(terms)
		if i%2 == 0 {
			slices.Reverse(mine)
		}
		wg.Go(func() {
			for range 5 {
				err := e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					return l.Guard(ctx, tx, mine...)
				}, holdfast.TxOptions{LockTimeout: time.Minute})
				if err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

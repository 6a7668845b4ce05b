package leases

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// clockOf reads an expression on a pool; {now} stands for the database's clock.
func (e *env[Tx]) clockOf(p conformance.Pool[Tx], expr string) (n int64) {
	e.Helper()
	a := access.Of(p.DB)
	if _, err := core.QueryRow(e.Ctx, a.Pool, []any{&n}, `SELECT `+strings.ReplaceAll(expr, "{now}", a.Dialect.Now)); err != nil {
		e.Fatalf("%s: %v", expr, err)
	}
	return n
}

// at returns a pool whose sessions have a clock that stands still at t, on InnoDB.
func (e *env[Tx]) at(t time.Time) conformance.Pool[Tx] {
	e.Helper()
	return e.openWithout(conformance.Param(e.DSN, "timestamp", fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000)), "timestamp")
}

// leaseFold checks that the clock of the leases is right in a session whose local time occurs
// twice, and in every other time zone. The naive clock is wrong by an hour.
func leaseFold[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.SetTimestamp)
	const hour = int64(time.Hour / time.Microsecond)
	switch {
	case e.InnoDB():
		// 02:30 in the night in which Berlin's clocks go back, the second time.
		fold := time.Date(2026, 10, 25, 1, 30, 0, 250000000, time.UTC)
		berlin := e.openWithout(conformance.Param(conformance.Param(e.DSN, "timestamp", "1792891800.25"), "time_zone", "'"+e.BerlinZone()+"'"), "timestamp")
		if now := e.clockOf(berlin, `{now}`); now != fold.UnixMicro() {
			e.Errorf("the clock is %d µs off in the fold", now-fold.UnixMicro())
		}
		naive := e.clockOf(berlin, `CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)`)
		if naive != fold.UnixMicro()-hour && e.Engine == dbtest.MySQL { // the others read their own text as they meant it, from MariaDB 11 on
			e.Errorf("the naive clock should be an hour off: %d µs", naive-fold.UnixMicro())
		}
		// A lock acquired in that session is held for the same time as seen by a session in UTC.
		lease := e.MustAcquire(e.LockerOn(berlin.DB, sqllock.Options{TTL: time.Minute}), "fold", sqllock.AcquireOptions{NoRenewal: true})
		utc := e.LockerOn(e.openWithout(conformance.Param(conformance.Param(e.DSN, "timestamp", "1792891800.25"), "time_zone", "'+00:00'"), "timestamp").DB, sqllock.Options{})
		if held := e.wantHeld(utc, "fold"); held.Remaining != time.Minute {
			e.Errorf("a lease of a minute is held for %v more", held.Remaining)
		}
		e.MustRelease(lease)
		e.MustRelease(e.wantFree(utc, "fold"))
	case e.Engine == dbtest.Postgres:
		utc, berlin := e.Open(conformance.Param(e.DSN, "timezone", "UTC")), e.Open(conformance.Param(e.DSN, "timezone", "Asia/Tokyo"))
		const local = `(extract(epoch FROM localtimestamp) * 1000000)::bigint - {now}`
		if off := e.clockOf(berlin, local); off < 8*hour {
			e.Errorf("the naive clock should be nine hours off, not %d µs", off)
		}
		if off := e.clockOf(berlin, `{now}`) - e.clockOf(utc, `{now}`); off > hour/2 || off < -hour/2 {
			e.Errorf("the clock is %d µs off", off)
		}
	default: // has no time zone per session
		if off := e.clockOf(e.Pool, `{now}`) - time.Now().UnixMicro(); off > hour/2 || off < -hour/2 {
			e.Errorf("the clock is %d µs off", off)
		}
	}
}

// leaseClientClock checks that a client whose clock is an hour ahead acquires the lock no
// earlier. The naive lock takes the expiry from each client's clock and grants it at once.
// (TestArguments checks the arguments of a lease's statements.) A server clock that is an hour
// off, or stands still, does not change the holder's context, which uses a monotonic clock.
func leaseClientClock[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.SetTimestamp)
	e.Must(`CREATE TABLE naive_locks (name VARCHAR(10) PRIMARY KEY, holder VARCHAR(10) NOT NULL, expires_at BIGINT NOT NULL)`)
	naive := func(holder string, clock time.Time) bool {
		r, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`UPDATE naive_locks SET holder = $1, expires_at = $2 WHERE name = 'k' AND expires_at <= $3`),
			holder, clock.Add(30*time.Second).UnixMicro(), clock.UnixMicro())
		if err != nil {
			e.Fatal(err)
		}
		n, err := r.RowsAffected()
		return err == nil && n == 1
	}
	e.Must(`INSERT INTO naive_locks VALUES ('k', '', 0)`)
	if !naive("a", time.Now()) || !naive("b", time.Now().Add(time.Hour)) {
		e.Error("the naive lock should have been granted twice")
	}
	if !e.InnoDB() {
		return // no session can have a clock that differs from the server's
	}
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		const ttl = 2 * time.Second
		key := "clock " + off.String()
		pool := e.at(time.Now().Add(off))
		l, other := e.LockerOn(pool.DB, sqllock.Options{TTL: ttl}), e.LockerOn(pool.DB, sqllock.Options{TTL: ttl})
		start := time.Now()
		lease := e.MustAcquire(l, key, sqllock.AcquireOptions{NoRenewal: true})
		if held := e.wantHeld(other, key); held.Remaining != ttl {
			e.Errorf("the server's clock stands still, %v off: %v of %v remain", off, held.Remaining, ttl)
		}
		e.WantEnded(lease, sqllock.ErrLost)
		if took := time.Since(start); took < ttl*9/10-time.Millisecond {
			e.Errorf("with the server's clock %v off the lease ended after %v", off, took)
		}
		e.wantHeld(other, key) // with a clock that stands still
	}
}

// leaseClockSteps checks that tokens increase through steps of the server's clock. After a step
// back a lease blocks others for longer, never for less. The lease's context cannot detect a
// step forward; then the guard refuses the old holder.
func leaseClockSteps[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.SetTimestamp)
	const ttl = 30 * time.Second
	l := e.LockerWith(sqllock.Options{TTL: ttl})
	// step changes the rows as if the clock had stepped by d.
	step := func(key string, d time.Duration) {
		e.Must(`UPDATE holdfast_locks SET token = token - $1, granted_at = granted_at - $2, expires_at = expires_at - $3 WHERE owner = '' AND name = $4`,
			d.Microseconds(), d.Microseconds(), d.Microseconds(), leaseRow(key))
	}
	lockers := map[string]*sqllock.Locker[Tx]{"": l}
	last := int64(0)
	grant := func(what string, l *sqllock.Locker[Tx]) {
		e.Helper()
		for range 2 {
			lease := e.wantFree(l, "steps")
			if lease.Token() <= last {
				e.Errorf("%s: token %d after %d", what, lease.Token(), last)
			}
			last = lease.Token()
			e.MustRelease(lease)
		}
	}
	grant("at first", l)
	if e.InnoDB() {
		for i, off := range []time.Duration{-time.Hour, 0, time.Hour, 0, -24 * time.Hour, 2 * time.Hour, -2 * time.Hour} {
			what := fmt.Sprintf("session %d, %v off", i, off)
			lockers[what] = e.LockerOn(e.at(time.Now().Add(off)).DB, sqllock.Options{TTL: ttl})
			grant(what, lockers[what])
		}
		grant("at last", l)
	} else {
		for range 3 {
			step("steps", -time.Hour) // the clock goes back: the rows are ahead of it
			last += time.Hour.Microseconds()
			grant("after a step back", l)
		}
	}

	// Step back: the holder's context ends by its monotonic clock, the row expires an hour
	// later.
	other := e.LockerWith(sqllock.Options{TTL: ttl})
	lease := e.MustAcquire(l, "back", sqllock.AcquireOptions{TTL: time.Second, NoRenewal: true})
	step("back", -time.Hour)
	e.WantEnded(lease, sqllock.ErrLost)
	if held := e.wantHeld(other, "back"); held.Remaining < 59*time.Minute {
		e.Errorf("after a step back %v remain", held.Remaining)
	}

	// Step forward: another call acquires the lock while the holder's context is alive.
	lease = e.MustAcquire(l, "forward")
	time.Sleep(2 * time.Millisecond) // SQLite's clock has milliseconds, and the step moves the token back as well
	if e.InnoDB() {
		other = e.LockerOn(e.at(time.Now().Add(time.Hour)).DB, sqllock.Options{TTL: ttl})
	} else {
		step("forward", time.Hour)
	}
	next := e.wantFree(other, "forward")
	if lease.Context().Err() == nil {
		e.Log("after a step forward two contexts are alive: only the guard protects")
	}
	if e.InnoDB() && next.Token() <= lease.Token() {
		e.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	tx := e.BeginTx(0)
	if err := l.Guard(e.Ctx, tx, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("the old holder after a step forward: %v, want ErrLost", err)
	}
	e.WantRolledBack(tx)
	e.guarded(other, 0, next.Term(), func(Tx) {})
	if err := lease.Release(context.WithoutCancel(e.Ctx)); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its release: %v, want ErrLost", err)
	}
	e.MustRelease(next)
}

// openWithout opens a database and leaves out the named admission rules.
func (e *env[Tx]) openWithout(dsn string, rules ...string) conformance.Pool[Tx] {
	e.Helper()
	return e.Handle.Open(conformance.Without(e.T, rules...), dsn)
}

package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// clockOf reads an expression on a pool; {now} stands for the database's clock.
func (e *Env[Tx]) clockOf(p Pool[Tx], expr string) (n int64) {
	e.Helper()
	a := p.DB.Access()
	if _, err := core.QueryRow(e.Ctx, a.Pool, []any{&n}, `SELECT `+strings.ReplaceAll(expr, "{now}", a.Dialect.Now)); err != nil {
		e.Fatalf("%s: %v", expr, err)
	}
	return n
}

// param adds a parameter to a DSN.
func param(dsn, name, value string) string {
	return dbtest.With(dsn, name+"="+url.QueryEscape(value))
}

// at returns a pool whose sessions have a clock that stands still at t, on InnoDB.
func (e *Env[Tx]) at(t time.Time) Pool[Tx] {
	e.Helper()
	return e.openWithout(param(e.DSN, "timestamp", fmt.Sprintf("%d.%06d", t.Unix(), t.Nanosecond()/1000)), "timestamp")
}

// berlin returns the name of Berlin's time zone. If the server has no time zone tables, berlin adds
// a zone with the transitions of 2026 and removes it when the test ends.
func (e *Env[Tx]) berlin() string {
	e.Helper()
	conn, err := e.SQL.Conn(e.Ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var at string
	if err := conn.QueryRowContext(e.Ctx, `SELECT CONVERT_TZ('2026-06-01 12:00:00', 'UTC', 'Europe/Berlin')`).Scan(&at); err == nil {
		return "Europe/Berlin"
	}
	name := "Holdfast/" + rand.Text()
	for _, q := range []string{
		`INSERT INTO mysql.time_zone (Use_leap_seconds) VALUES ('N')`,
		`SET @zone = LAST_INSERT_ID()`,
		`INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('` + name + `', @zone)`,
		`INSERT INTO mysql.time_zone_transition_type VALUES (@zone, 0, 3600, 0, 'CET'), (@zone, 1, 7200, 1, 'CEST')`,
		`INSERT INTO mysql.time_zone_transition VALUES (@zone, 1774746000, 1), (@zone, 1792890000, 0)`,
	} {
		if _, err := conn.ExecContext(e.Ctx, q); err != nil {
			e.Fatalf("the server knows no time zones, and none could be added: %v", err)
		}
	}
	e.Cleanup(func() {
		for _, table := range []string{"time_zone_transition", "time_zone_transition_type", "time_zone"} {
			_, _ = e.SQL.ExecContext(context.WithoutCancel(e.Ctx), `DELETE FROM mysql.`+table+` WHERE Time_zone_id = (SELECT Time_zone_id FROM mysql.time_zone_name WHERE Name = ?)`, name)
		}
		_, _ = e.SQL.ExecContext(context.WithoutCancel(e.Ctx), `DELETE FROM mysql.time_zone_name WHERE Name = ?`, name)
	})
	return name
}

// Berlin returns a DSN whose sessions are in Berlin's time zone, where the engine has zones.
func (e *Env[Tx]) Berlin() string {
	e.Helper()
	switch {
	case e.InnoDB():
		return param(e.DSN, "time_zone", "'"+e.berlin()+"'")
	case e.Engine == dbtest.Postgres:
		return param(e.DSN, "timezone", "Europe/Berlin")
	}
	return e.DSN
}

// leaseFold checks that the clock of the leases is right in a session whose local time occurs
// twice, and in every other time zone. The naive clock is wrong by an hour.
func leaseFold[Tx any](e *Env[Tx]) {
	const hour = int64(time.Hour / time.Microsecond)
	switch {
	case e.InnoDB():
		// 02:30 in the night in which Berlin's clocks go back, the second time.
		fold := time.Date(2026, 10, 25, 1, 30, 0, 250000000, time.UTC)
		berlin := e.openWithout(param(param(e.DSN, "timestamp", "1792891800.25"), "time_zone", "'"+e.berlin()+"'"), "timestamp")
		if now := e.clockOf(berlin, `{now}`); now != fold.UnixMicro() {
			e.Errorf("the clock is %d µs off in the fold", now-fold.UnixMicro())
		}
		naive := e.clockOf(berlin, `CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)`)
		if naive != fold.UnixMicro()-hour {
			e.Errorf("the naive clock should be an hour off: %d µs", naive-fold.UnixMicro())
		}
		// A lock acquired in that session is held for the same time as seen by a session in UTC.
		lease := e.mustAcquire(e.leaserOn(berlin.DB, sqllock.Options{TTL: time.Minute}), "fold", sqllock.AcquireOptions{NoRenewal: true})
		utc := e.leaserOn(e.openWithout(param(param(e.DSN, "timestamp", "1792891800.25"), "time_zone", "'+00:00'"), "timestamp").DB, sqllock.Options{})
		if held := e.wantHeld(utc, "fold"); held.Remaining != time.Minute {
			e.Errorf("a lease of a minute is held for %v more", held.Remaining)
		}
		e.mustRelease(lease)
		e.mustRelease(e.wantFree(utc, "fold"))
	case e.Engine == dbtest.Postgres:
		utc, berlin := e.openWith(param(e.DSN, "timezone", "UTC")), e.openWith(param(e.DSN, "timezone", "Asia/Tokyo"))
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
func leaseClientClock[Tx any](e *Env[Tx]) {
	e.Must(`CREATE TABLE naive_locks (name VARCHAR(10) PRIMARY KEY, owner VARCHAR(10) NOT NULL, expires_at BIGINT NOT NULL)`)
	naive := func(owner string, clock time.Time) bool {
		r, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`UPDATE naive_locks SET owner = $1, expires_at = $2 WHERE name = 'k' AND expires_at <= $3`),
			owner, clock.Add(30*time.Second).UnixMicro(), clock.UnixMicro())
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
		l, other := e.leaserOn(pool.DB, sqllock.Options{TTL: ttl}), e.leaserOn(pool.DB, sqllock.Options{TTL: ttl})
		start := time.Now()
		lease := e.mustAcquire(l, key, sqllock.AcquireOptions{NoRenewal: true})
		if held := e.wantHeld(other, key); held.Remaining != ttl {
			e.Errorf("the server's clock stands still, %v off: %v of %v remain", off, held.Remaining, ttl)
		}
		e.ended(lease, sqllock.ErrLost)
		if took := time.Since(start); took < ttl*9/10-time.Millisecond {
			e.Errorf("with the server's clock %v off the lease ended after %v", off, took)
		}
		e.wantHeld(other, key) // with a clock that stands still
	}
}

// leaseClockSteps checks that tokens increase through steps of the server's clock. After a step
// back a lease blocks others for longer, never for less. The lease's context cannot detect a
// step forward; then the guard refuses the old holder.
func leaseClockSteps[Tx any](e *Env[Tx]) {
	const ttl = 30 * time.Second
	l := e.leaser(sqllock.Options{TTL: ttl})
	// step changes the rows as if the clock had stepped by d.
	step := func(key string, d time.Duration) {
		e.Must(`UPDATE holdfast_locks SET token = token - $1, granted_at = granted_at - $2, expires_at = expires_at - $3 WHERE name = $4`,
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
			e.mustRelease(lease)
		}
	}
	grant("at first", l)
	if e.InnoDB() {
		for i, off := range []time.Duration{-time.Hour, 0, time.Hour, 0, -24 * time.Hour, 2 * time.Hour, -2 * time.Hour} {
			what := fmt.Sprintf("session %d, %v off", i, off)
			lockers[what] = e.leaserOn(e.at(time.Now().Add(off)).DB, sqllock.Options{TTL: ttl})
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
	other := e.leaser(sqllock.Options{TTL: ttl})
	lease := e.mustAcquire(l, "back", sqllock.AcquireOptions{TTL: time.Second, NoRenewal: true})
	step("back", -time.Hour)
	e.ended(lease, sqllock.ErrLost)
	if held := e.wantHeld(other, "back"); held.Remaining < 59*time.Minute {
		e.Errorf("after a step back %v remain", held.Remaining)
	}

	// Step forward: another call acquires the lock while the holder's context is alive.
	lease = e.mustAcquire(l, "forward")
	time.Sleep(2 * time.Millisecond) // SQLite's clock has milliseconds, and the step moves the token back as well
	if e.InnoDB() {
		other = e.leaserOn(e.at(time.Now().Add(time.Hour)).DB, sqllock.Options{TTL: ttl})
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
	tx := e.begin(0)
	if err := l.Guard(e.Ctx, tx, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("the old holder after a step forward: %v, want ErrLost", err)
	}
	e.gone(tx)
	e.guarded(other, 0, next.Term(), func(Tx) {})
	if err := lease.Release(context.WithoutCancel(e.Ctx)); !errors.Is(err, sqllock.ErrLost) {
		e.Errorf("its release: %v, want ErrLost", err)
	}
	e.mustRelease(next)
}

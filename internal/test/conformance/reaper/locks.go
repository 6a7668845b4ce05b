package reaper

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/reaper"
)

// Locks is the suite of the reaper on lock rows.
func Locks[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	for name, f := range map[string]func(*env[Tx]){
		"ExactRows":                  locksExactRows[Tx],
		"BatchesAndBounds":           locksBatches[Tx],
		"LargestBatch":               locksLargestBatch[Tx],
		"TablesAreMissing":           locksTablesMissing[Tx],
		"TakenInBetween":             lockTakenInBetween[Tx],
		"GuardedRowIsPassedOver":     guardedRowIsPassedOver[Tx],
		"FloorRace":                  floorRace[Tx],
		"DeleteBeforeRaise":          deleteBeforeRaise[Tx],
		"GrantsAtEveryStep":          grantsAtEveryStep[Tx],
		"ClockSteppedBack":           clockSteppedBack[Tx],
		"FourReapersAndEightHolders": fourReapersAndEightHolders[Tx],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, h, f)
		})
	}
}

const (
	hour = 3_600_000_000 // µs
	day  = 24 * hour
)

// lockName returns the name of a lock's row: one byte for its kind, then the key.
func lockName(key string) string { return "\x01" + key }

// series returns n free rows of equal expiry, with consecutive tokens from token on.
func series(key string, n, token, expires int) (locks []conformance.Lock) {
	for i := range n {
		locks = append(locks, conformance.Lock{Name: lockName(fmt.Sprintf("%s %06d", key, i)), Token: token + i, Expires: expires})
	}
	return locks
}

// tokens reads the tokens of all rows.
func (e *env[Tx]) tokens() map[string]int {
	e.Helper()
	rows, err := e.SQL.QueryContext(e.Ctx, `SELECT name, token FROM holdfast_locks`)
	if err != nil {
		e.Fatal(err)
	}
	defer rows.Close()
	got := map[string]int{}
	for rows.Next() {
		var name []byte
		var token int
		if err := rows.Scan(&name, &token); err != nil {
			e.Fatal(err)
		}
		got[string(name)] = token
	}
	if rows.Err() != nil {
		e.Fatal(rows.Err())
	}
	return got
}

func (e *env[Tx]) floor() int {
	e.Helper()
	return e.Int(`SELECT token FROM holdfast_floor WHERE id = 1`)
}

// sweepLocks sweeps and fails unless it deleted exactly this number of lock rows and nothing
// else.
func (e *env[Tx]) sweepLocks(r *reaper.Reaper, rows int64) reaper.TaskReport {
	e.Helper()
	report, err := r.Sweep(e.Ctx)
	if err != nil || len(report.Tasks) != conformance.SweepTasks || report.Tasks[2].Rows != rows || report.Rows() != rows {
		e.Fatalf("swept %+v, %v, want %d locks", report, err, rows)
	}
	return report.Tasks[2]
}

// locksExactRows checks free and held rows of several kinds, before and after the grace period.
func locksExactRows[Tx any](e *env[Tx]) {
	now := e.Now()
	longest := strings.Repeat("\xff", 1025)
	expiries := map[string]int{"live": now + hour, "expired": now - 30*60*1_000_000, "due": now - 2*hour}
	want := map[string]int{}
	var due int64
	most, token := 0, 1000
	for _, kind := range []string{"\x00", "\x01", "\x02", "\xff", longest} {
		for expiry, at := range expiries {
			for _, attempt := range [][]byte{nil, make([]byte, 16)} {
				token++
				name := fmt.Sprintf("%s%s %d", kind, expiry, len(attempt))
				if kind == longest {
					name = longest[:1025-len(name)+len(kind)] + name[len(kind):]
				}
				e.Locks(conformance.Lock{Name: name, Attempt: attempt, Token: token, Expires: at})
				if expiry == "due" {
					due++
					most = token
				} else {
					want[name] = token
				}
			}
		}
	}
	want[lockName("unborn")] = 9_000_000 // the row stays, so the floor need not cover it
	e.Locks(conformance.Lock{Name: lockName("unborn"), Token: 9_000_000, Expires: now})
	before := e.tokens()
	r := e.Reaper(reaper.Options{})
	dry, err := r.DryRun(e.Ctx)
	if err != nil || len(dry.Tasks) != conformance.SweepTasks || dry.Tasks[2].Rows != due || dry.Rows() != due || dry.Tasks[2].Oldest < 2*time.Hour || dry.Tasks[2].Oldest > 2*time.Hour+conformance.Timeout {
		e.Errorf("the dry run counted %+v, %v", dry, err)
	}
	if !maps.Equal(e.tokens(), before) || e.floor() != 0 {
		e.Error("the dry run changed something")
	}
	report := e.sweepLocks(r, due)
	if report.Oldest < 2*time.Hour || report.Oldest > 2*time.Hour+conformance.Timeout || report.Passed != 0 || report.Batches != 1 {
		e.Errorf("report %+v", report)
	}
	if got := e.tokens(); !maps.Equal(got, want) || e.floor() != most {
		e.Errorf("the table has\n%q, want\n%q; the floor is %d, want %d", got, want, e.floor(), most)
	}
	e.sweepLocks(r, 0)
	// Half an hour is more than a grace of a minute.
	e.sweepLocks(e.Reaper(reaper.Options{LockGrace: time.Minute}), 10)
	if got := len(e.tokens()); got != 11 {
		e.Errorf("%d rows are left", got)
	}
	// The floor never decreases.
	high := e.floor()
	e.Locks(conformance.Lock{Name: lockName("small"), Token: 5, Expires: now - 2*hour})
	e.sweepLocks(r, 1)
	if e.floor() != high {
		e.Errorf("the floor went from %d to %d", high, e.floor())
	}
}

func locksBatches[Tx any](e *env[Tx]) {
	now := e.Now()
	e.Locks(series("due", 95, 1000, now-2*hour)...)
	e.Locks(series("eternal", 50, 1000, now+hour)...) // behind them
	e.Locks(series("alive", 50, 1000, now+hour)...)   // before them
	seen := &statements{}
	o := quick(10)
	o.MaxRows = 25
	r := e.Reaper(o, seen.observe())
	for i, want := range []int64{25, 25, 25, 20} {
		report := e.sweepLocks(r, want)
		if report.Batches != int((want+9)/10) || report.Passed != 0 {
			e.Errorf("sweep %d: %+v", i, report)
		}
		if left := len(e.tokens()); left != 195-min(25*(i+1), 95) {
			e.Errorf("sweep %d: %d rows are left", i, left)
		}
	}
	if n := seen.count["sweep.locks.write"]; n != 3+3+3+2 {
		e.Errorf("%d writes, want one a batch", n)
	}
	raises := seen.count["sweep.locks.raise"]
	e.sweepLocks(r, 0)
	if seen.count["sweep.locks.write"] != 11 || seen.count["sweep.locks.raise"] != raises || e.floor() != 1094 {
		e.Errorf("a sweep without work wrote, or the floor is %d", e.floor())
	}
	// Rows below the floor raise it at most once a pass, and never to zero.
	e.Locks(series("again", 40, 900, now-2*hour)...)
	o.MaxRows = 0
	e.sweepLocks(e.Reaper(o, seen.observe()), 40)
	if n := seen.count["sweep.locks.raise"]; n != 1 || e.floor() != 1094 {
		e.Errorf("raised %d times, to %d", n, e.floor())
	}
}

// locksLargestBatch checks that the largest batch works with every driver and finds each name
// through the primary key: on InnoDB it locks only its own rows.
func locksLargestBatch[Tx any](e *env[Tx]) {
	now := e.Now()
	e.Locks(series("due", 2000+1, 1000, now-2*hour)...)
	e.Locks(series("live", 100, 1000, now+hour)...)
	report := e.sweepLocks(e.Reaper(quick(2000)), 2000+1)
	if report.Batches != 2 || len(e.tokens()) != 100 {
		e.Errorf("report %+v, %d rows are left", report, len(e.tokens()))
	}
	if _, err := reaper.New(e.Ctx, e.DB, reaper.Options{LockGrace: time.Second}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a grace of a second: %v", err)
	}
	if _, err := reaper.New(e.Ctx, e.DB, reaper.Options{LockGrace: 366 * 24 * time.Hour}); !errors.Is(err, holdfast.ErrInvalid) {
		e.Errorf("a grace of a leap year: %v", err)
	}
}

// locksTablesMissing checks that the reaper deletes no row without a floor, and that it uses the
// tables of its prefix and schema.
func locksTablesMissing[Tx any](e *env[Tx]) {
	e.Migrate(holdfast.Options{Prefix: "pay_"})
	opts := holdfast.Options{Prefix: "pay_", Schema: e.Schema()}
	e.Locks(series("due", 7, 1000, e.Now()-2*hour)...)
	e.Must(`INSERT INTO pay_locks SELECT * FROM holdfast_locks`)
	pay := e.Reaper(reaper.Options{}, opts)
	e.sweepLocks(pay, 7)
	if n := e.Int(`SELECT token FROM pay_floor`); n != 1006 || e.floor() != 0 || len(e.tokens()) != 7 {
		e.Errorf("floors %d and %d, %d rows", n, e.floor(), len(e.tokens()))
	}

	r := e.Reaper(reaper.Options{})
	missing := func(table string) {
		e.Helper()
		report, err := r.Sweep(e.Ctx)
		s := (*holdfast.SchemaError)(nil)
		if !errors.As(err, &s) || !strings.Contains(s.Table, table) || report.Rows() != 0 || len(report.Tasks) != 3 {
			e.Errorf("without %s: %+v, %v", table, report, err)
		}
	}
	e.Must(`DELETE FROM holdfast_floor`)
	missing("floor")
	if len(e.tokens()) != 7 {
		e.Error("rows were deleted without a floor")
	}
	e.Must(`DROP TABLE holdfast_locks`)
	missing("locks")
	if _, err := r.DryRun(e.Ctx); !errors.Is(err, holdfast.ErrSchema) {
		e.Errorf("dry run: %v", err)
	}
}

// lockTakenInBetween renews rows and takes them over between the read of a batch and its delete,
// before the reaper raises the floor and after.
func lockTakenInBetween[Tx any](e *env[Tx]) {
	for nth := 1; nth <= 2; nth++ {
		at := func(key string) string { return lockName(fmt.Sprintf("%s %d", key, nth)) }
		now := e.Now()
		old := now - 2*hour
		e.Locks(conformance.Lock{Name: at("due"), Token: now + day, Expires: old}, conformance.Lock{Name: at("renewed"), Attempt: make([]byte, 16), Token: now + day, Expires: old},
			conformance.Lock{Name: at("taken"), Token: now + day, Expires: old}, conformance.Lock{Name: at("passed on"), Token: now + 2*day, Expires: old})
		begins := -1
		var passed int
		seen := &statements{then: func(st holdfast.Statement, _ int) {
			switch {
			case st.Name == "sweep.locks.find" && begins < 0:
				begins = 0
				return
			case st.Name != "begin" || begins < 0:
				return
			}
			if begins++; begins != nth {
				return
			}
			e.Must(`UPDATE holdfast_locks SET expires_at = $1 WHERE owner = '' AND name = $2`, now+hour, []byte(at("renewed")))
			e.mustGrant(at("taken"))
			// This term ends, and then the clock goes back.
			passed = int(e.mustGrant(at("passed on")))
			e.Must(`UPDATE holdfast_locks SET attempt = NULL, expires_at = $1 WHERE owner = '' AND name = $2`, old, []byte(at("passed on")))
		}}
		report := e.sweepLocks(e.Reaper(reaper.Options{}, seen.observe()), 1)
		if report.Passed != 3 || begins < nth {
			e.Errorf("%d: report %+v", nth, report)
		}
		got := e.tokens()
		if got[at("renewed")] != now+day || got[at("taken")] <= now+day || got[at("passed on")] != passed || got[at("due")] != 0 {
			e.Errorf("%d: the table has %q", nth, got)
		}
		// The naive forms. A delete by expiry alone removes the later term, which the floor does
		// not cover; a delete by name alone removes a live term.
		e.Must(`DELETE FROM holdfast_locks WHERE owner = '' AND name IN ($1) AND expires_at <= $2`, []byte(at("passed on")), now-hour)
		if token := e.mustGrant(at("passed on")); int(token) > passed {
			e.Errorf("the naive form shows nothing: %d after %d", token, passed)
		}
		r, err := e.SQL.ExecContext(e.Ctx, e.Rebind(`DELETE FROM holdfast_locks WHERE owner = '' AND name IN ($1) AND attempt IS NOT NULL AND expires_at > $2`), []byte(at("taken")), e.Now())
		if err != nil {
			e.Fatal(err)
		}
		if n, _ := r.RowsAffected(); n != 1 {
			e.Error("the lock that was taken over was not live")
		}
		e.Must(`DELETE FROM holdfast_locks`)
	}
}

// guardedRowIsPassedOver keeps open a transaction that guards its term. On engines with row
// locks the reaper skips that row, without waiting if the engine can; on SQLite it waits for the
// writer.
func guardedRowIsPassedOver[Tx any](e *env[Tx]) {
	locks := series("due", 20, 1000, e.Now()-2*hour)
	for i := range locks {
		locks[i].Attempt = make([]byte, 16)
	}
	e.Locks(locks...)
	tx := e.BeginTx(sql.LevelDefault)
	defer func() { _ = e.End(e.Ctx, tx, false) }() // the pool waits for tx when it closes, also after a failure
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		e.Fatal(err)
	}
	row, _ := lockname.Parse("", []byte(locks[7].Name))
	// The rows are in no store, which is known once the row is locked.
	if got, err := e.tables().LeaseGuard().Run(e.Ctx, q, lockstmt.TermID{Name: row, Token: int64(locks[7].Token)}, "none"); got != lockstmt.OtherStore || err != nil {
		e.Fatalf("guarding: %v, %v", got, err)
	}
	if !e.DB.Capabilities().RowLocks {
		released := false
		seen := &statements{then: func(s holdfast.Statement, _ int) {
			if s.Name == "sweep.locks.raise" && s.Err != nil && !released {
				released = true
				e.EndTx(tx, true)
			}
		}}
		e.sweepLocks(e.Reaper(quick(8), seen.observe()), 20)
		if !released {
			e.Error("a write went past another session that holds the writer")
		}
		return
	}
	seen := &statements{}
	r := e.Reaper(quick(8), seen.observe())
	report := e.sweepLocks(r, 19)
	got := e.tokens()
	// A batch that waits is halved, so it is written more often.
	waits := seen.count["sweep.locks.write"] > 3
	if report.Passed != 1 || report.Batches != 3 || waits != access.Of(e.DB).Dialect.Leases.Alone || len(got) != 1 || got[locks[7].Name] != locks[7].Token {
		e.Errorf("report %+v, %d writes, left %q", report, seen.count["sweep.locks.write"], got)
	}
	err = e.DB.InTx(e.Ctx, func(_ context.Context, naive Tx) error {
		_, err := e.Exec(e.Ctx, naive, `DELETE FROM holdfast_locks WHERE owner = '' AND name IN ($1) AND expires_at <= $2`, []byte(locks[7].Name), e.Now())
		return err
	}, holdfast.TxOptions{Attempts: 1, LockTimeout: time.Second})
	if !errors.Is(err, holdfast.ErrRetry) {
		e.Errorf("the naive delete does not wait for the guard: %v", err)
	}
	e.EndTx(tx, true)
	e.sweepLocks(r, 1)
}

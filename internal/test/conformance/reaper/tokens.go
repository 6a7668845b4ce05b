package reaper

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/dialect/lockstmt"
	"github.com/holdfast-go/holdfast/internal/lockname"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/reaper"
)

// leases compiles the statements of package sqllock.
func (e *env[Tx]) leases() *lockstmt.LeaseStatements {
	return e.tables().Leases(1, "holder", lockstmt.AttemptID{})
}

func (e *env[Tx]) tables() *lockstmt.Tables {
	a := access.Of(e.DB)
	return lockstmt.New(a.Dialect, a.Table)
}

// grant tries once to acquire a lock for a minute, as package sqllock does: it inserts the row, or
// takes it over if it exists. Token 0 means that the lock is not available now; this includes a
// locked row and a transaction that must run again.
func (e *env[Tx]) grant(db *holdfast.DB[Tx], name string, id lockstmt.AttemptID) (token int64, err error) {
	err = access.Of(db).OnConn(e.Ctx, "", func(q core.Querier) (err error) {
		token, err = e.grantOn(q, name, id)
		return err
	})
	if db.Retryable(err) {
		return 0, nil
	}
	return token, err
}

// noneKnown says that no row is known to exist.
type noneKnown struct{}

func (noneKnown) Has(lockname.Name) bool { return false }

func (e *env[Tx]) grantOn(q core.Querier, name string, id lockstmt.AttemptID) (int64, error) {
	d := access.Of(e.DB).Dialect
	leases := e.leases()
	row, _ := lockname.Parse("", []byte(name))
	a := lockstmt.Attempt{Name: row, ID: id, TTL: time.Minute}
	try := func(one lockstmt.Grant, many lockstmt.GrantMany) (int64, error) {
		if id[0]%2 == 0 && d.Leases.TakeMany != "" { // every other time, the forms for several leases
			tokens, _, err := many.Run(e.Ctx, q, []lockstmt.Attempt{a})
			return tokens[id], err
		}
		outcome, s, err := one.Run(e.Ctx, q, a)
		if outcome != lockstmt.Granted {
			return 0, err
		}
		return s.Token, err
	}
	if leases.MakeFirst(noneKnown{}, row) {
		token, err := try(leases.Make, leases.MakeMany)
		if token > 0 || err != nil && d.Classify(err) != dialect.Duplicate {
			return token, err
		}
	}
	return try(leases.Take, leases.TakeMany)
}

// mustGrant retries until it acquires the lock.
func (e *env[Tx]) mustGrant(name string) (token int64) {
	e.Helper()
	var attempt lockstmt.AttemptID
	_, _ = rand.Read(attempt[:])
	e.Eventually("a grant of "+name, func() bool {
		var err error
		if token, err = e.grant(e.DB, name, attempt); err != nil {
			e.Fatalf("grant of %q: %v", name, err)
		}
		return token > 0
	})
	return token
}

// floorRace uses a transaction that has read the floor and is about to insert the row of a key.
// The key's old row is due and has a greater token.
func floorRace[Tx any](e *env[Tx]) {
	e.floorRace(false)
	if e.DB.Capabilities().RowLocks {
		e.Must(`DELETE FROM holdfast_locks`)
		e.Must(`UPDATE holdfast_floor SET token = 0`)
		e.floorRace(true)
	}
}

// floorRace reads the floor in share mode (locked), or as the naive form does.
func (e *env[Tx]) floorRace(locked bool) {
	e.Helper()
	d := access.Of(e.DB).Dialect
	name, old := lockName("key"), e.Now()+day
	e.Locks(conformance.Lock{Name: name, Token: old, Expires: e.Now() - 2*hour})
	tx := e.BeginTx(sql.LevelDefault)
	defer func() { _ = e.End(e.Ctx, tx, false) }() // the pool waits for tx when it closes, also after a failure
	q, err := access.Of(e.DB).Join(tx)
	if err != nil {
		e.Fatal(err)
	}
	read := `SELECT token FROM holdfast_floor WHERE id = 1`
	switch {
	case locked && !e.DB.Capabilities().SharedGuards:
		read += ` FOR UPDATE`
	case locked && e.InnoDB():
		read += ` LOCK IN SHARE MODE`
	case locked:
		read += ` FOR SHARE`
	}
	var floor int64
	if _, err := core.QueryRow(e.Ctx, q, []any{&floor}, read); err != nil {
		e.Fatal(err)
	}
	insert := func() dialect.Class {
		_, err := e.Exec(e.Ctx, tx, `INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) VALUES ('', $1, $2, NULL, '', 1, 1)`,
			[]byte(name), max(floor+1, int64(e.Now())))
		if err != nil && d.Classify(err) == dialect.Other {
			e.Fatal(err)
		}
		return d.Classify(err)
	}
	r := e.Reaper(reaper.Options{})
	switch {
	case locked:
		var wg sync.WaitGroup
		wg.Go(func() { e.sweepLocks(r, 1) })
		time.Sleep(300 * time.Millisecond) // the update of the floor waits
		if e.tokens()[name] != old || e.floor() != 0 {
			e.Error("the reaper went past a transaction that has the floor in share mode")
		}
		if class := insert(); class != dialect.Duplicate {
			e.Errorf("the insert: class %v", class)
		}
		e.EndTx(tx, false)
		wg.Wait()
		if token := e.mustGrant(name); token <= int64(old) {
			e.Errorf("token %d after %d", token, old)
		}
	case e.DB.Capabilities().RowLocks && (!e.InnoDB() || e.StaleWrites()):
		e.sweepLocks(r, 1)
		class := insert()
		e.EndTx(tx, true)
		if got := e.tokens()[name]; class != dialect.Other || got >= old || e.floor() != old {
			e.Errorf("the naive form shows nothing: %d after %d, floor %d, class %v", got, old, e.floor(), class)
		}
	default: // a write on a snapshot that is older than the sweep is refused
		e.sweepLocks(r, 1)
		if class := insert(); class != dialect.Retry {
			e.Errorf("the insert: class %v", class)
		}
	}
}

// deleteBeforeRaise is the opposite order; it loses against the real statements.
func deleteBeforeRaise[Tx any](e *env[Tx]) {
	name, old := lockName("key"), e.Now()+day
	e.Locks(conformance.Lock{Name: name, Token: old, Expires: e.Now() - 2*hour})
	e.Must(`DELETE FROM holdfast_locks`)
	token := e.mustGrant(name)
	e.Must(`UPDATE holdfast_floor SET token = $1`, old)
	if token >= int64(old) {
		e.Errorf("the naive form shows nothing: %d after %d", token, old)
	}
}

// grantsAtEveryStep lets another session acquire the lock of the row being reaped after each
// statement of a sweep, and once more afterwards.
func grantsAtEveryStep[Tx any](e *env[Tx]) {
	type step struct {
		statement string
		nth       int // since the read
	}
	for _, at := range []step{
		{"sweep.locks.find", 1},
		{"begin", 1},
		{"sweep.locks.raise", 1},
		{"commit", 1},
		{"begin", 2},
		{"sweep.locks.write", 1},
		{"commit", 2},
	} {
		name := lockName(at.statement + fmt.Sprint(at.nth))
		old := int64(max(e.floor(), e.Now()) + day)
		e.Locks(conformance.Lock{Name: name, Token: int(old), Expires: e.Now() - 2*hour})
		e.Locks(series("other", 5, e.floor(), e.Now()-2*hour)...)
		var token int64
		var wg sync.WaitGroup
		count := map[string]int{}
		seen := &statements{then: func(s holdfast.Statement, _ int) {
			if s.Name != "sweep.locks.find" && count["sweep.locks.find"] == 0 {
				return
			}
			count[s.Name]++
			if s.Name != at.statement || count[s.Name] != at.nth || token != 0 {
				return
			}
			granted := make(chan struct{})
			wg.Go(func() { token = e.mustGrant(name); close(granted) })
			select { // some grants wait until the reaper is done, or are refused until then
			case <-granted:
			case <-time.After(200 * time.Millisecond):
			}
		}}
		report, err := e.Reaper(reaper.Options{}, seen.observe()).Sweep(e.Ctx)
		wg.Wait()
		if err != nil || report.Rows() < 5 {
			e.Errorf("%v: %+v, %v", at, report, err)
		}
		if token <= old {
			e.Errorf("%v: token %d after %d", at, token, old)
		}
		e.Must(`UPDATE holdfast_locks SET attempt = NULL WHERE owner = '' AND name = $1`, []byte(name))
		if again := e.mustGrant(name); again <= token {
			e.Errorf("%v: token %d after %d", at, again, token)
		}
		e.Must(`DELETE FROM holdfast_locks`)
	}
}

// clockSteppedBack uses tokens of a time when the clock was ahead, again and again. InnoDB's
// clock can be set per session.
func clockSteppedBack[Tx any](e *env[Tx]) {
	dbtest.Needs(e, e.Engine, dbtest.SetTimestamp)
	conn, err := access.Of(e.DB).Acquire(e.Ctx)
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Release(true)
	if e.InnoDB() {
		if _, err := conn.Exec(e.Ctx, `SET timestamp = 1000000000`); err != nil {
			e.Fatal(err)
		}
	}
	name := lockName("key")
	r := e.Reaper(reaper.Options{})
	last := int64(e.Now() + 3650*day)
	e.Locks(conformance.Lock{Name: name, Attempt: make([]byte, 16), Token: int(last), Expires: e.Now() - 2*hour})
	for i := range byte(4) {
		e.sweepLocks(r, 1)
		if len(e.tokens()) != 0 {
			e.Fatal("the row is still there")
		}
		token, err := e.grantOn(conn, name, lockstmt.AttemptID{15: i + 1})
		if err != nil || token <= last {
			e.Errorf("grant %d: token %d after %d, %v", i, token, last, err)
		}
		last = token
		e.Must(`UPDATE holdfast_locks SET expires_at = $1`, e.Now()-2*hour)
	}
}

// fourReapersAndEightHolders acquires and releases locks while reapers delete their rows. It
// records each grant while the lock is held.
func fourReapersAndEightHolders[Tx any](e *env[Tx]) {
	dbtest.NotUnderRace(e, "twelve at once are too slow on SQLite's one writer")
	const keys, holders, grants = 300, 8, 40
	if e.Engine == dbtest.SQLite { // twelve wait for the one writer, and SQLite has no line
		e.DSN = dbtest.With(e.DSN, "_pragma=busy_timeout(60000)")
		e.SQL = dbtest.OpenSQL(e.T, e.DSN)
	}
	e.Must(`CREATE TABLE history (k ` + e.Bytes(100) + ` NOT NULL, token BIGINT NOT NULL, PRIMARY KEY (k, token))`)
	e.Locks(series("key", keys, e.Now()+day, e.Now()-2*hour)...)
	e.Must(`INSERT INTO history SELECT name, token FROM holdfast_locks`)
	// The deadlocks of the reapers and of the holders.
	counting := func(n *atomic.Int64) holdfast.Options {
		return holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
			if s.Err != nil && access.Of(e.DB).Dialect.Classify(s.Err) == dialect.Retry {
				n.Add(1)
			}
		}}}
	}
	var deleted, ofReapers, ofHolders atomic.Int64
	db := e.Handle.Open(e.T, e.DSN, counting(&ofHolders)).DB
	release := e.leases().Release

	var working atomic.Int32
	var own sync.WaitGroup
	for w := range holders {
		working.Add(1)
		own.Go(func() {
			defer working.Add(-1)
			for n := range grants {
				name := lockName(fmt.Sprintf("key %06d", mathrand.IntN(keys)))
				attempt := lockstmt.AttemptID(fmt.Appendf(nil, "%16d", w*grants+n))
				token, err := e.grant(db, name, attempt)
				if err != nil {
					e.Errorf("grant: %v", err)
					return
				}
				if token == 0 {
					continue
				}
				if last := e.Int(`SELECT COALESCE(MAX(token), 0) FROM history WHERE k = $1`, []byte(name)); token <= int64(last) {
					e.Errorf("%q: token %d after %d", name, token, last)
				}
				e.Must(`INSERT INTO history (k, token) VALUES ($1, $2)`, []byte(name), token)
				err = access.Of(db).OnConn(e.Ctx, "", func(q core.Querier) error {
					row, _ := lockname.Parse("", []byte(name))
					freed, err := release.Run(e.Ctx, q, lockstmt.Attempt{Name: row, ID: attempt})
					if err == nil && !freed.Was {
						err = errors.New("it has no term")
					}
					return err
				})
				if err != nil {
					e.Errorf("release: %v", err)
				}
				// As if the grace period had passed.
				e.Must(`UPDATE holdfast_locks SET expires_at = $1 WHERE owner = '' AND name = $2 AND attempt IS NULL`, e.Now()-2*hour, []byte(name))
			}
		})
	}
	var reap sync.WaitGroup
	for range 4 {
		r := e.Reaper(reaper.Options{Batch: 20, Pace: 0.1}, counting(&ofReapers))
		reap.Go(func() {
			for last := false; !last; {
				last = working.Load() == 0
				report, err := r.Sweep(e.Ctx)
				if err != nil {
					e.Errorf("a reaper: %+v, %v", report, err)
				}
				deleted.Add(report.Rows())
			}
		})
	}
	own.Wait()
	reap.Wait()
	again := e.Int(`SELECT COUNT(*) FROM history`) - keys
	if left := len(e.tokens()); left != 0 || deleted.Load() <= keys || again < holders {
		e.Errorf("%d rows are left, %d deleted, %d grants: too few to show anything", left, deleted.Load(), again)
	}
	// Two inserts on InnoDB that meet a row during its deletion deadlock with each other,
	// rarely. Package sqllock retries them, and so does the test.
	r, h := ofReapers.Load(), ofHolders.Load()
	if e.DB.Capabilities().RowLocks && (r > 0 || h > 0 && !e.InnoDB()) {
		e.Errorf("%d statements of the reapers and %d of the holders were victims of deadlocks", r, h)
	}
	e.Logf("%d rows deleted, %d grants, victims of deadlocks: %d reapers, %d holders", deleted.Load(), again, r, h)
}

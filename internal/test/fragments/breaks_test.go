package fragments

import (
	"context"
	"database/sql"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/sqllock"
)

const key = "lock"

// inside has the processes that believe they hold the lock.
type inside map[string]bool

func (in inside) wantTwo(t *testing.T) {
	t.Helper()
	if len(in) != 2 {
		t.Errorf("%v are inside: the fragment should have let two in", in)
	}
}

func database(t *testing.T, statements ...string) *holdfasttest.Kit[*sql.Tx] {
	t.Helper()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	for _, statement := range statements {
		exec(t, kit.Pool, statement)
	}
	return kit
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) (rows int64) {
	t.Helper()
	result, err := db.ExecContext(t.Context(), statement, args...)
	if err == nil {
		rows, err = result.RowsAffected()
	}
	if err != nil {
		t.Error(err)
	}
	return rows
}

func cents(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT cents FROM orders`).Scan(&n); err != nil {
		t.Error(err)
	}
	return n
}

func insertThenDelete(t *testing.T) {
	db := database(t, `CREATE TABLE row_locks (name TEXT PRIMARY KEY, taken_at INTEGER)`).Pool
	in, clock := inside{}, 1
	work := func(name string) *process {
		return begin(t, func(at func(string)) {
			if exec(t, db, `INSERT INTO row_locks VALUES ('lock', ?) ON CONFLICT DO NOTHING`, clock) == 0 {
				return
			}
			in[name] = true
			at("inside")
			delete(in, name)
			exec(t, db, `DELETE FROM row_locks WHERE name = 'lock'`)
		})
	}
	a, b, c := work("A"), work("B"), work("C")
	a.runTo("inside")
	clock += 601
	exec(t, db, `DELETE FROM row_locks WHERE taken_at < ?`, clock-600) // the cleanup job
	b.runTo("inside")
	in.wantTwo(t) // A and B
	a.finish()    // and deletes B's row
	c.runTo("inside")
	in.wantTwo(t) // B and C
}

func setnxThenExpire(t *testing.T) {
	clock := 1
	r := newRedis(&clock)
	lock := func(name string, at func(string)) bool {
		if !r.setNX(key, name) {
			return false
		}
		at("between")
		r.expire(key, 30)
		return true
	}
	a := begin(t, func(at func(string)) { lock("A", at) })
	a.runTo("between") // and is killed there
	clock += 365 * 24 * 3600
	b := begin(t, func(at func(string)) {
		if lock("B", at) {
			t.Error("B has the lock: the fragment should have left it taken for ever")
		}
	})
	b.finish()
}

func getsetTimestamp(t *testing.T) {
	clock := 1
	r, in := newRedis(&clock), inside{}
	work := func(name string, ahead int) *process {
		return begin(t, func(at func(string)) {
			now := clock + ahead // by this process's own clock
			mine := strconv.Itoa(now + 30)
			if !r.setNX(key, mine) {
				theirs, _ := r.get(key)
				if ends, _ := strconv.Atoi(theirs); ends > now {
					return
				}
				at("expired")
				if r.getSet(key, mine) != theirs {
					return
				}
			}
			in[name] = true
			at("inside")
			delete(in, name)
			if value, _ := r.get(key); value == mine {
				r.del(key)
			}
		})
	}
	a, b, c := work("A", 0), work("B", 60), work("C", 60)
	a.runTo("inside")
	b.runTo("expired") // by B's clock alone
	clock++
	c.runTo("expired")
	b.runTo("inside")
	in.wantTwo(t) // A and B
	c.finish()    // C has lost, and its stamp stands in the place of B's
	b.finish()
	if _, taken := r.get(key); !taken {
		t.Error("the lock is free: B should not have known its stamp")
	}
}

func getThenDel(t *testing.T) {
	clock := 1
	r, in := newRedis(&clock), inside{}
	work := func(name string) *process {
		return begin(t, func(at func(string)) {
			if !r.setNXEX(key, name, 30) {
				return
			}
			in[name] = true
			at("inside")
			delete(in, name)
			if value, _ := r.get(key); value == name {
				at("between")
				r.del(key)
			}
		})
	}
	a, b, c := work("A"), work("B"), work("C")
	a.runTo("inside")
	a.runTo("between") // the value is A's
	clock += 31
	b.runTo("inside")
	a.finish() // and deletes B's lock
	c.runTo("inside")
	in.wantTwo(t) // B and C
}

func forgottenWriter(t *testing.T) {
	db := database(t, ordersTable, `INSERT INTO orders VALUES ('42', 100, 1)`).Pool
	a := begin(t, func(at func(string)) {
		read := cents(t, db) // version 1
		at("read")
		if exec(t, db, `UPDATE orders SET cents = ?, version = version + 1 WHERE version = 1`, read-30) != 1 {
			t.Error("A has a conflict: the fragment should have seen none")
		}
	})
	a.runTo("read")
	exec(t, db, `UPDATE orders SET cents = cents - 40`) // a script that knows no version
	a.finish()
	if n := cents(t, db); n != 70 {
		t.Errorf("%d cents: the fragment should have lost the script's 40", n)
	}
}

const ordersTable = `CREATE TABLE orders (order_no TEXT NOT NULL PRIMARY KEY, cents INTEGER NOT NULL, version INTEGER NOT NULL)`

// refundsOf plays two refunds of an order of 100 cents, 30 by A and 40 by B, each of which reads, stops and writes.
// acquire returns whether the process may go on; between runs while A is stopped before its write.
func refundsOf(t *testing.T, db *sql.DB, acquire func(name string) bool, between func()) {
	t.Helper()
	work := func(name string, refund int) *process {
		return begin(t, func(at func(string)) {
			if !acquire(name) {
				t.Error(name + " has no lock")
			}
			left := cents(t, db) - refund
			at("read")
			exec(t, db, `UPDATE orders SET cents = ?`, left)
		})
	}
	a, b := work("A", 30), work("B", 40)
	a.runTo("read")
	between()
	b.runTo("read")
	b.finish()
	a.finish()
	if n := cents(t, db); n != 70 {
		t.Errorf("%d cents: A should have overwritten what B did", n)
	}
}

func redlockPaused(t *testing.T) {
	clock := 1
	nodes := make([]*redis, 5)
	for i := range nodes {
		nodes[i] = newRedis(&clock)
	}
	acquire := func(name string) bool {
		began, have := clock, 0
		for _, r := range nodes {
			if r.setNXEX(key, name, 30) {
				have++
			}
		}
		const drift = 1
		return have > len(nodes)/2 && 30-(clock-began)-drift > 0
	}
	db := database(t, ordersTable, `INSERT INTO orders VALUES ('42', 100, 1)`).Pool
	refundsOf(t, db, acquire, func() { clock += 31 })
}

func unguardedLease(t *testing.T) {
	kit := database(t, ordersTable, `INSERT INTO orders VALUES ('42', 100, 1)`)
	acquire := func(string) bool {
		lease := try(t, locker(t, kit))
		return lease != nil && lease.Context().Err() == nil
	}
	refundsOf(t, kit.Pool, acquire, func() { end(t, kit) })
}

func locker(t *testing.T, kit *holdfasttest.Kit[*sql.Tx]) *sqllock.Locker[*sql.Tx] {
	t.Helper()
	locks, err := sqllock.New(t.Context(), kit.DB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// try returns a lease of an hour that is not renewed, or nil.
func try(t *testing.T, locks *sqllock.Locker[*sql.Tx]) *sqllock.Lease {
	t.Helper()
	lease, err := locks.TryAcquire(t.Context(), key, sqllock.AcquireOptions{TTL: time.Hour, NoRenewal: true})
	if err != nil {
		return nil
	}
	return lease
}

// end ends the lease in the database, as its TTL does. The holder does not notice, as if it were stopped.
func end(t *testing.T, kit *holdfasttest.Kit[*sql.Tx]) {
	t.Helper()
	if exec(t, kit.Pool, `UPDATE holdfast_locks SET expires_at = 1`) == 0 {
		t.Error("there is no lease")
	}
}

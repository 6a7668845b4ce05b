package fairlock_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestNotified checks that a release wakes the process of the next ticket, which does not poll.
func TestNotified(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Only(conformance.Pgx(), dbtest.Postgres), func(e *conformance.Env[pgx.Tx]) {
		const rounds = 5
		lockers := e.Lockers(2, sqllock.Options{})
		one, two := fairlock.New(lockers[0]), fairlock.New(lockers[1])
		for _, l := range []*fairlock.Locker[pgx.Tx]{one, two} {
			l.PollRarely(time.Hour)
		}
		held, err := one.Acquire(e.Ctx, "key")
		e.Check(err)
		for range rounds {
			one, two = two, one // one waits for the lease of two
			next := make(chan *sqllock.Lease, 1)
			go func() {
				lease, err := one.Acquire(e.Ctx, "key")
				if err != nil {
					e.Error(err)
				}
				next <- lease
			}()
			e.Eventually("it waits and listens", one.Listens)
			e.MustRelease(held)
			if held = <-next; held == nil {
				return
			}
		}
		e.MustRelease(held)
	})
}

// TestForgedNotifications sends notifications as any account of the database can: they make a process
// look, and grant nothing, unless they name the attempt of the ticket, which only the table has.
func TestForgedNotifications(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Only(conformance.Pgx(), dbtest.Postgres), func(e *conformance.Env[pgx.Tx]) {
		lockers := e.Lockers(2, sqllock.Options{})
		one, two := fairlock.New(lockers[0]), fairlock.New(lockers[1])
		held, err := one.Acquire(e.Ctx, "key")
		e.Check(err)
		next := make(chan *sqllock.Lease, 1)
		go func() {
			lease, err := two.Acquire(e.Ctx, "key")
			if err != nil {
				e.Error(err)
			}
			next <- lease
		}()
		e.Eventually("it waits and listens", two.Listens)
		var name string
		e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT '/' || encode(name, 'hex') || '/' FROM holdfast_locks WHERE owner = ''`).Scan(&name))
		for _, payload := range []string{"", "/", "//", "zz/zz/zz", "00/00/00", name, name + "00", name + "another process", name + "x/00", name + "x/", name + "x/" + strings.Repeat("00", 16), strings.Repeat("/", 7000)} {
			_, err := e.SQL.ExecContext(e.Ctx, `SELECT pg_notify('holdfast_' || encode(store, 'hex'), $1) FROM holdfast_floor`, payload)
			e.Check(err)
		}
		select {
		case <-next:
			e.Fatal("a forged notification was taken for a grant")
		default:
		}
		var granted int
		e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT count(*) FROM holdfast_tickets WHERE granted_at IS NOT NULL`).Scan(&granted))
		if granted != 1 {
			e.Errorf("%d hold the lock", granted)
		}
		e.MustRelease(held)
		if held = <-next; held != nil {
			e.MustRelease(held)
		}
	})
}

// TestWoken checks the same on the engines on which a named lock wakes the other process.
func TestWoken(t *testing.T) {
	t.Parallel()
	h := conformance.With(conformance.SQL(), "interpolateParams=true", dbtest.MySQL, dbtest.MariaDB) // the server shows which lock is waited for
	conformance.Run(t, h, func(e *conformance.Env[*sql.Tx]) {
		const rounds = 5
		lockers := e.Lockers(2, sqllock.Options{})
		one, two := fairlock.New(lockers[0]), fairlock.New(lockers[1])
		held, err := one.Acquire(e.Ctx, "key")
		e.Check(err)
		for round := range rounds {
			one, two = two, one // one waits for the lease of two
			next := make(chan *sqllock.Lease, 1)
			go func() {
				lease, err := one.Acquire(e.Ctx, "key")
				if err != nil {
					e.Error(err)
				}
				next <- lease
			}()
			// The first holder does not know that others want the lock, so the first waiter polls.
			if round == 0 {
				e.Eventually("it waits", one.SeesOthers)
			} else {
				e.Eventually("it waits and listens", func() bool { return one.Hears() && two.Wakes() })
				// A statement that is still under way is not woken, and nothing else would.
				e.Eventually("the server has its wait", func() bool {
					return e.Int(`SELECT COUNT(*) FROM `+e.Engine.Sessions()+` WHERE db = DATABASE() AND state = 'User lock' AND info LIKE ?`, "%"+two.NamedLock()+"%") > 0
				})
			}
			e.MustRelease(held)
			if held = <-next; held == nil {
				return
			}
			one.PollRarely(time.Hour)
			two.PollRarely(time.Hour)
		}
		e.MustRelease(held)
	})
}

// TestReleaseSerializable checks that a release at SERIALIZABLE reads no other ticket: it would conflict with each
// renewal of one. PostgreSQL says what it has read.
func TestReleaseSerializable(t *testing.T) {
	t.Parallel()
	h := conformance.With(conformance.SQL(), "default_transaction_isolation=serializable", dbtest.Postgres)
	conformance.Run(t, h, func(e *conformance.Env[*sql.Tx]) {
		l := fairlock.New(e.LockerWith(sqllock.Options{TTL: time.Hour}))
		held, err := l.Acquire(e.Ctx, "key")
		e.Check(err)
		// The next ticket is a row without a call, because a call would read the tickets, too.
		e.Must(`INSERT INTO holdfast_tickets (owner, name, token, attempt, units, capacity, holder, queued_at, expires_at)
 SELECT owner, name, token + 1, decode(repeat('01', 16), 'hex'), units, capacity, holder, queued_at, expires_at FROM holdfast_tickets`)

		tx, err := e.SQL.BeginTx(e.Ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		e.Check(err)
		defer func() { _ = tx.Rollback() }()
		var n int
		e.Check(tx.QueryRowContext(e.Ctx, `SELECT COUNT(*) FROM holdfast_tickets`).Scan(&n))
		e.MustRelease(held)
		// While tx is open, the database keeps which rows the release has read. The one that it has deleted
		// does not count, nor do other sessions: upkeep in the background reads tickets, too.
		var released, locks int
		e.Check(e.SQL.QueryRowContext(e.Ctx, `SELECT COUNT(DISTINCT a.pid), COUNT(l.pid) FROM pg_stat_activity a
 LEFT JOIN pg_locks l ON l.pid = a.pid AND l.mode = 'SIReadLock' AND l.relation = 'holdfast_tickets'::regclass
 WHERE a.query LIKE 'WITH gone AS%' AND a.query LIKE '%'||current_schema()||'%'`).Scan(&released, &locks))
		if released != 1 || locks != 0 {
			e.Errorf("%d sessions have released, and read %d other tickets", released, locks)
		}
	})
}

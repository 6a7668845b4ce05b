package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
	"github.com/holdfast-go/holdfast/sqllock/fairlock"
)

// TestSession checks that the leases and tickets of a process whose session has ended are taken
// over at once, with higher tokens, and that the process has lost them.
func TestSession(t *testing.T) {
	t.Parallel()
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		conformance.Run(t, conformance.Only(conformance.SQL(), dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB), sessionEnds[*sql.Tx])
	})
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		conformance.Run(t, conformance.Only(conformance.Pgx(), dbtest.Postgres), sessionEnds[pgx.Tx])
	})
}

func sessionEnds[Tx any](e *conformance.Env[Tx]) {
	o := sqllock.Options{TTL: time.Hour, ReleaseOnDisconnect: true}
	one, two := e.LockerWith(o), e.LockerWith(o)
	fair := [2]*fairlock.Locker[Tx]{fairlock.New(one), fairlock.New(two)}
	first := one.Session()
	kept := e.MustAcquire(two, "of the one that waits")
	held := []*sqllock.Lease{e.MustAcquire(one, "key"), e.MustAcquire(one, "other")}
	ticket, err := fair[0].Acquire(e.Ctx, "key")
	e.Check(err)
	held = append(held, ticket)

	type granted struct {
		lease *sqllock.Lease
		err   error
	}
	results := make(chan granted, len(held))
	for _, wait := range []func() (*sqllock.Lease, error){
		func() (*sqllock.Lease, error) { return two.Acquire(e.Ctx, "key") },
		func() (*sqllock.Lease, error) { return two.Acquire(e.Ctx, "other") },
		func() (*sqllock.Lease, error) { return fair[1].Acquire(e.Ctx, "key") },
	} {
		go func() {
			lease, err := wait()
			results <- granted{lease, err}
		}()
	}
	e.Eventually("all of them wait", func() bool { return two.Waiting() == 2 && e.Tickets() == 2 })
	e.EndSession(one.SessionNumber())
	most := int64(0)
	for _, l := range held {
		<-l.Context().Done()
		if cause := context.Cause(l.Context()); !errors.Is(cause, sqllock.ErrLost) {
			e.Errorf("the lease ended with %v", cause)
		}
		most = max(most, l.Token())
	}
	if lost := (*sqllock.LostError)(nil); !errors.As(context.Cause(held[0].Context()), &lost) || lost.Err == nil {
		e.Errorf("the lease ended with %v, which does not say what became of the session", context.Cause(held[0].Context()))
	}
	for range held {
		g := <-results
		if g.err != nil {
			e.Fatal(g.err)
		}
		if g.lease.Token() <= held[0].Token() && g.lease.Token() <= held[2].Token() {
			e.Errorf("token %d is not above its predecessor's", g.lease.Token())
		}
		e.MustRelease(g.lease)
	}
	if err := kept.Context().Err(); err != nil {
		e.Errorf("a lease of the other process ended, too: %v", err)
	}
	e.Eventually("it has another session", func() bool { s := one.Session(); return s != first && s != "" })
	e.MustRelease(e.MustAcquire(one, "key"))
	e.MustRelease(kept)
}

// TestSessionLives checks that a lease of a process that lives is not taken, regardless of the session of
// the one that waits.
func TestSessionLives(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Only(conformance.SQL(), dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB), func(e *conformance.Env[*sql.Tx]) {
		one, two := e.LockerWith(sqllock.Options{TTL: time.Hour, ReleaseOnDisconnect: true}), e.Locker()
		held := e.MustAcquire(one, "key")
		ctx, cancel := context.WithTimeout(e.Ctx, 2*time.Second)
		defer cancel()
		if _, err := two.Acquire(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("got %v", err)
		}
		e.EndSession(one.SessionNumber()) // of a process that has the lease no more when it is asked
		lease, err := two.Acquire(e.Ctx, "key")
		e.Check(err)
		if lease.Token() <= held.Token() {
			e.Errorf("token %d after %d", lease.Token(), held.Token())
		}
		e.MustRelease(lease)
	})
}

// TestSessionEndsOfALivingHolder ends the session of a process that lives and reaches the server. Both
// processes see the end at the same time, so only Guard keeps the old term from writing beside the new one:
// whether or not its context has ended, a transaction of the old term does not commit after the grant.
func TestSessionEndsOfALivingHolder(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.Only(conformance.SQL(), dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB), func(e *conformance.Env[*sql.Tx]) {
		o := sqllock.Options{TTL: time.Hour, ReleaseOnDisconnect: true}
		one, two := e.LockerWith(o), e.LockerWith(o)
		held := e.MustAcquire(one, "key")
		term := held.Term()
		e.EndSession(one.SessionNumber())
		next := e.MustAcquire(two, "key")
		tx := e.BeginTx(sql.LevelDefault)
		if err := one.Guard(e.Ctx, tx, term); !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("the old term's guard after the grant: %v", err)
		}
		e.WantRolledBack(tx)
		<-held.Context().Done()
		if cause := context.Cause(held.Context()); !errors.Is(cause, sqllock.ErrLost) {
			e.Errorf("the lease ended with %v", cause)
		}
		e.MustRelease(next)
	})
}

// TestSessionRefused checks what New answers where no session can be kept.
func TestSessionRefused(t *testing.T) {
	t.Parallel()
	o := sqllock.Options{ReleaseOnDisconnect: true}
	conformance.Run(t, conformance.Only(conformance.SQL(), dbtest.SQLite), func(e *conformance.Env[*sql.Tx]) {
		if _, err := sqllock.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("got %v", err)
		}
	})
	conformance.Run(t, conformance.Only(oneConn(), dbtest.Postgres, dbtest.MySQL), func(e *conformance.Env[*sql.Tx]) {
		if _, err := sqllock.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("got %v", err)
		}
	})
	conformance.Run(t, conformance.Only(new(wire).pgx(), dbtest.Postgres), func(e *conformance.Env[pgx.Tx]) {
		if _, err := sqllock.New(e.Ctx, e.DB, o); !errors.Is(err, holdfast.ErrInvalid) {
			e.Errorf("a pool of pgx: %v", err)
		}
	})
}

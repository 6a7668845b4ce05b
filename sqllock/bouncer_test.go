package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestPgBouncerLeases checks that two processes take turns on one key and write under its
// guard. Each term is exclusive, whichever session runs its statements.
func TestPgBouncerLeases(t *testing.T) {
	t.Parallel()
	bouncedLeases[*sql.Tx](t, conformance.Bounced(conformance.SQL(), "exec"))
	bouncedLeases[pgx.Tx](t, conformance.Bounced(conformance.Pgx(), "simple_protocol"))
}

// TestPgBouncerLeasesPrepared is the same with statements that the driver prepares, which a PgBouncer
// before 1.21 does not know in another session.
func TestPgBouncerLeasesPrepared(t *testing.T) {
	dbtest.NeedsPreparingBouncer(t)
	t.Parallel()
	bouncedLeases[*sql.Tx](t, conformance.Bounced(conformance.SQL(), "cache_statement"))
	bouncedLeases[pgx.Tx](t, conformance.Bounced(conformance.Pgx(), "cache_statement"))
}

func bouncedLeases[Tx any](t *testing.T, h conformance.Handle[Tx]) {
	t.Helper()
	conformance.Run(t, h, func(e *conformance.Env[Tx]) {
		lockers := []*sqllock.Locker[Tx]{e.Locker(), e.Locker()}
		e.Must(`CREATE TABLE counter (n INT NOT NULL)`)
		e.Must(`INSERT INTO counter VALUES (0)`)
		var all sync.WaitGroup
		for i := range 24 {
			l := lockers[i%2]
			all.Go(func() {
				lease, err := l.Acquire(e.Ctx, "k")
				if err != nil {
					e.Error(err)
					return
				}
				err = e.DB.InTx(e.Ctx, func(ctx context.Context, tx Tx) error {
					if err := l.Guard(ctx, tx, lease.Term()); err != nil {
						return err
					}
					_, err := e.Exec(ctx, tx, `UPDATE counter SET n = n + 1`)
					return err
				})
				if err := errors.Join(err, lease.Release(e.Ctx)); err != nil {
					e.Error(err)
				}
				if err := l.Guard(e.Ctx, *new(Tx), lease.Term()); !errors.Is(err, holdfast.ErrNoTx) {
					e.Errorf("without a transaction: %v", err)
				}
			})
		}
		all.Wait()
		if n := e.Int(`SELECT n FROM counter`); n != 24 {
			e.Errorf("%d of 24 guarded writes are there", n)
		}
	})
}

// TestPgBouncerBell checks that waiters behind PgBouncer do not rely on notifications. There a
// LISTEN ends with its transaction, without an error. The notifier sends itself a test
// notification and does not receive it, so the waiter keeps polling and gets the lock.
func TestPgBouncerBell(t *testing.T) {
	t.Parallel()
	count := &counter{n: map[string]int{}}
	conformance.Run(t, conformance.Bounced(conformance.Pgx(), "exec"), func(e *conformance.Env[pgx.Tx]) {
		if e.Engine != dbtest.Postgres {
			return
		}
		var lockers []*sqllock.Locker[pgx.Tx]
		for range 2 {
			l, err := sqllock.New(e.Ctx, e.DB, sqllock.Options{TTL: time.Hour})
			if err != nil {
				e.Fatal(err)
			}
			e.Cleanup(func() { _ = l.Close(context.Background()) })
			lockers = append(lockers, l)
		}
		for range 2 {
			lease, err := lockers[0].Acquire(e.Ctx, "k")
			if err != nil {
				e.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				next, err := lockers[1].Acquire(e.Ctx, "k")
				if err == nil {
					err = next.Release(e.Ctx)
				}
				got <- err
			}()
			time.Sleep(3 * time.Second) // longer than the test of the notifier
			looks := 0
			for n := 0; n < 10 && looks < 5; n++ { // a busy machine may be slow for a while
				before := count.of("locks.waits")
				time.Sleep(time.Second)
				looks = count.of("locks.waits") - before
			}
			if looks < 5 {
				e.Errorf("it looked %d times in a second: a bell that is not heard is trusted", looks)
			}
			if err := errors.Join(lease.Release(e.Ctx), <-got); err != nil {
				e.Error(err)
			}
		}
	}, holdfast.Options{Observers: []holdfast.Observer{count.observe}})
}

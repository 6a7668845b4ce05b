package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Rule: a late release that must wait and is sent again reports that the lease was lost: the
// refused first attempt did nothing.
func TestLeaseReleasedLateAndAgain(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		counters(e, "key")
		patience := map[dbtest.Engine]string{
			dbtest.Postgres: "lock_timeout=300", dbtest.MySQL: "innodb_lock_wait_timeout=1",
			dbtest.MariaDB: "innodb_lock_wait_timeout=1", dbtest.SQLite: "_pragma=busy_timeout(100)",
		}[e.Engine]
		o := sqllock.Options{TTL: time.Minute}
		late := joined(e.T, dbtest.With(e.DSN, patience), "", o, history.New(), nil)
		other := joined(e.T, e.DSN, "", o, history.New(), nil)
		lease, err := late.locks.Acquire(e.Ctx, "key", sqllock.AcquireOptions{TTL: conformance.ShortTTL, NoRenewal: true})
		if err != nil {
			e.Fatal(err)
		}
		next, err := other.locks.Acquire(e.Ctx, "key")
		if err != nil {
			e.Fatal(err)
		}

		// The next holder's guarded transaction locks the row during this time.
		tx, err := other.pool.BeginTx(e.Ctx, nil)
		if err != nil {
			e.Fatal(err)
		}
		if err := other.put(e.Ctx, tx, next.Term(), guarded); err != nil {
			e.Fatal(err)
		}
		released := make(chan error, 1)
		go func() { released <- lease.Release(context.Background()) }()
		time.Sleep(1500 * time.Millisecond)
		if err := tx.Commit(); err != nil {
			e.Error(err)
		}
		if err := <-released; !errors.Is(err, sqllock.ErrLost) {
			e.Errorf("released late: %v, want ErrLost", err)
		}
		if err := unreleased(next.Release(e.Ctx)); err != nil {
			e.Errorf("the next holder's release: %v", err)
		}
	})
}

// Rule: the same if the reply to the release is lost with its connection: the lease's own
// context had already reported the loss.
func TestLeaseReleasedLateWithoutReply(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // it has no replies
		}
		e := conformance.New(t, conformance.SQL(), engine)
		w := again(t, &world[*sql.Tx]{Env: e})
		o := sqllock.Options{TTL: time.Minute}
		late := joined(t, dbtest.With(w.DSN, textOf(engine)), "", o, history.New(), nil)
		other := joined(t, e.DSN, "", o, history.New(), nil)
		for name, c := range map[string]struct {
			taken bool
			want  error
		}{"taken": {true, sqllock.ErrLost}, "held": {false, nil}} {
			opts := []sqllock.AcquireOptions{}
			if c.taken {
				opts = []sqllock.AcquireOptions{{TTL: conformance.ShortTTL, NoRenewal: true}}
			}
			lease, err := late.locks.Acquire(e.Ctx, name, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if c.taken {
				if _, err := other.locks.Acquire(e.Ctx, name); err != nil {
					t.Fatal(err)
				}
			}
			f := w.proxy.LoseReply(faultproxy.Contains("SET attempt = NULL"), faultproxy.Close)
			err = lease.Release(e.Ctx)
			w.struck(f, err)
			if !errors.Is(err, c.want) {
				t.Errorf("%s, released without a reply: %v, want %v", name, err, c.want)
			}
		}
	})
}

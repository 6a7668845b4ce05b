package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/faultproxy"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Rule: a statement that requests many leases may run long after its connection was lost, when
// each caller has already got an answer from another statement. The leases it then grants have
// no caller, and the Locker releases them. If the statement runs but its result cannot be read,
// each caller finds its own lease.
func TestLeasesGatheredLate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		if engine == dbtest.SQLite {
			return // no network
		}
		e := conformance.New(t, conformance.SQL(), engine)
		for _, c := range []gatheredCase{{"held meanwhile", true, false}, {"granted by another statement", false, false}, {"not read", false, true}} {
			if c.unread && engine == dbtest.Postgres {
				continue // it reads nothing
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				gatheredLate(t, again(t, &world[*sql.Tx]{Env: e}), e.DSN, c)
			})
		}
	})
}

type gatheredCase struct {
	name         string
	held, unread bool // held by another Locker; the statement that reads the grants is lost
}

func gatheredLate(t *testing.T, w *world[*sql.Tx], direct string, c gatheredCase) {
	const n = 24
	since := time.Now().UnixMicro()
	keys := make([]string, n)
	o := sqllock.Options{TTL: time.Minute}
	late := joined(t, dbtest.With(w.DSN, textOf(w.Engine)), "", o, history.New(), nil)
	other := joined(t, direct, "", o, history.New(), nil)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s %d", c.name, i)
		lease, err := late.locks.Acquire(w.Ctx, keys[i]) // the Locker knows the row from now on
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(w.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	// all makes a party try every key at the same time.
	all := func(p *party) (leases []*sqllock.Lease) {
		leases = make([]*sqllock.Lease, n)
		var tries sync.WaitGroup
		for i, key := range keys {
			tries.Go(func() {
				var err error
				if leases[i], err = p.locks.TryAcquire(w.Ctx, key); err != nil && !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		tries.Wait()
		return leases
	}
	end := func(leases []*sqllock.Lease) {
		for _, lease := range leases {
			if lease == nil {
				continue
			}
			if err := unreleased(lease.Release(context.Background())); err != nil {
				t.Error(err)
			}
		}
	}
	var meanwhile []*sqllock.Lease
	if c.held {
		meanwhile = all(other)
	}
	w.proxy.Slow(20 * time.Millisecond) // the calls after the first form a batch
	take, granted := "f STRAIGHT_JOIN (", `SELECT CAST(SUM(token - $1) AS SIGNED) FROM holdfast_locks WHERE LOCATE($2, name) > 0`
	if w.Engine == dbtest.Postgres {
		take, granted = "WITH free AS MATERIALIZED", `SELECT SUM(token - $1::bigint) FROM holdfast_locks WHERE position($2::text IN convert_from(name, 'UTF8')) > 0`
	}
	if c.unread {
		take = "SELECT attempt, token FROM"
	}
	f := w.proxy.Hold(faultproxy.Contains(take), faultproxy.Close)
	mine := all(late)
	w.proxy.Slow(0)
	w.struck(f, nil)
	for i, lease := range mine {
		if (lease != nil) == c.held {
			t.Fatalf("%s: granted %v, held by another %v", keys[i], lease != nil, c.held)
		}
	}
	end(meanwhile)
	end(mine)
	// A grant increases the token, even if the grant has been released.
	tokens := func() int { return w.Int(granted, since, c.name) }
	before := tokens()
	if err := f.Deliver(); err != nil {
		t.Fatal(err)
	}
	if tokens() == before && !c.unread {
		t.Fatal("the late statement granted nothing")
	}
	left := func() (left []string) {
		for _, key := range keys {
			seen, _, err := other.locks.Inspect(w.Ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			if seen.Held {
				left = append(left, key)
			}
		}
		return left
	}
	w.Eventually("what was granted late is free again", func() bool { return len(left()) == 0 })
}

package faults_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// Rule: thousands of leases are renewed with a few statements per interval, and none is lost on
// a busy machine. The test measures over time, so make scale runs it, alone: short leases of
// other tests would be lost.
func TestLeaseRenewalAtScale(t *testing.T) {
	dbtest.OnlyAtScale(t)
	leases, hold := 2000, 10*time.Second
	if testing.Short() {
		leases, hold = 500, 4*time.Second
	}
	var burning sync.WaitGroup
	var enough atomic.Bool
	for range max(runtime.GOMAXPROCS(0)-1, 1) {
		burning.Go(func() {
			for sum := [32]byte{}; !enough.Load(); {
				sum = sha256.Sum256(sum[:])
			}
		})
	}
	t.Run("load", func(t *testing.T) {
		conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
			makeBare(e)
			for ttl := 3 * time.Second; ; ttl *= 2 {
				lost, slowest := holdMany(e, leases, ttl, hold)
				if lost == 0 {
					return
				}
				// A machine on which a plain update is this slow gets more time.
				if slowest < ttl/20 || ttl > 20*time.Second {
					e.Errorf("%d of %d leases with a TTL of %v were lost; the slowest bare update took %v", lost, leases, ttl, slowest)
					return
				}
			}
		})
	})
	enough.Store(true)
	burning.Wait()
}

// makeBare creates the table of bareUpdates.
func makeBare(e *conformance.Env[*sql.Tx]) {
	e.Helper()
	e.Must(`CREATE TABLE bare (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)`)
	e.Must(`INSERT INTO bare (id, n) VALUES (0, 0)`)
	for n := 1; n < 1024 && e.Engine != dbtest.SQLite; n *= 2 { // SQLite's writers would wait for it
		e.Must(fmt.Sprintf(`INSERT INTO bare (id, n) SELECT id + %d, 0 FROM bare`, n))
	}
}

// bareUpdates costs the database as much as a renewal, without Holdfast, and returns the longest
// duration of an update.
func bareUpdates(e *conformance.Env[*sql.Tx], enough <-chan struct{}) (longest time.Duration) {
	for {
		begun := time.Now()
		if _, err := e.SQL.ExecContext(e.Ctx, `UPDATE bare SET n = n + 1`); err != nil {
			e.Error(err)
			return longest
		}
		longest = max(longest, time.Since(begun))
		select {
		case <-enough:
			return longest
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// counter observes renewals.
type counter struct {
	on                        atomic.Bool
	renewals, failed, longest atomic.Int64
}

func (c *counter) observe(_ context.Context, s holdfast.Statement) {
	if !c.on.Load() || s.Name != "locks.renew" {
		return
	}
	c.renewals.Add(1)
	if s.Err != nil {
		c.failed.Add(1)
	}
	c.longest.Store(max(c.longest.Load(), int64(s.Duration)))
}

// holdMany acquires n leases and holds them. It returns the number of lost leases, and the
// duration of the slowest plain update during that time.
func holdMany(e *conformance.Env[*sql.Tx], n int, ttl, hold time.Duration) (lost int, slowest time.Duration) {
	e.Helper()
	hold = max(hold, ttl*3/2)
	interval := ttl / 3
	var count counter
	p, err := join(e.Ctx, e.DSN, "", sqllock.Options{TTL: ttl}, history.New(), nil, holdfast.Options{Observers: []holdfast.Observer{count.observe}})
	if err != nil {
		e.Fatal(err)
	}
	defer func() {
		e.Must(`UPDATE holdfast_locks SET attempt = NULL`)
		_ = p.pool.Close() // otherwise Close would release them one by one
		_ = p.locks.Close(context.Background())
	}()
	enough, bare := make(chan struct{}), make(chan time.Duration, 1)
	go func() { bare <- bareUpdates(e, enough) }()
	atOnce := 32
	if e.Engine == dbtest.SQLite { // its writers do not queue, so one renewal among many may starve
		atOnce = 2
		p.pool.SetMaxOpenConns(1)
	}
	p.pool.SetMaxIdleConns(atOnce)
	held := make([]*sqllock.Lease, n)
	var acquiring sync.WaitGroup
	begun := time.Now()
	for i := range atOnce {
		acquiring.Go(func() {
			for ; i < n; i += atOnce {
				var err error
				if held[i], err = p.locks.Acquire(e.Ctx, fmt.Sprint("key ", i)); err != nil {
					e.Errorf("acquire: %v", err)
					return
				}
			}
		})
	}
	acquiring.Wait()
	took := time.Since(begun)
	count.on.Store(true)
	time.Sleep(hold)
	count.on.Store(false)
	close(enough)
	slowest = <-bare
	if e.Failed() {
		return 0, slowest
	}

	for _, l := range held {
		if cause := context.Cause(l.Context()); cause != nil {
			if lost++; lost == 1 {
				e.Logf("lost: %v", cause)
			}
		}
	}
	live := e.Int(`SELECT COUNT(*) FROM holdfast_locks WHERE attempt IS NOT NULL AND expires_at > ` + access.Of(p.db).Dialect.Now)
	perInterval := float64(count.renewals.Load()) * float64(interval) / float64(hold)
	e.Logf("%d leases with a TTL of %v, acquired in %v, held for %v: %d lost; %d renewals (%d failed, the longest took %v), %.1f an interval of %v; the slowest bare update took %v",
		n, ttl, took.Round(time.Millisecond), hold, lost, count.renewals.Load(), count.failed.Load(),
		time.Duration(count.longest.Load()).Round(time.Millisecond), perInterval, interval, slowest.Round(time.Millisecond))
	if lost != 0 {
		return lost, slowest
	}
	if live != n {
		e.Errorf("%d of %d leases are live in the table", live, n)
	}
	if perInterval > 20 || perInterval < 0.5 {
		e.Errorf("%.1f renewals an interval, want at most 20 and some", perInterval)
	}
	rival := joined(e.T, e.DSN, "", sqllock.Options{}, history.New(), nil)
	for i := 0; i < n; i += n / 20 {
		var other *sqllock.HeldError
		if _, err := rival.locks.TryAcquire(e.Ctx, held[i].Key()); !errors.As(err, &other) || other.Token != held[i].Token() {
			e.Errorf("%s: a rival got: %v", held[i].Key(), err)
		}
	}
	return 0, slowest
}

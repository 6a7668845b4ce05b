//go:build unix

package faults_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// inSession are the engines that can tell that a process has ended.
func inSession() conformance.Handle[*sql.Tx] {
	return conformance.Only(conformance.SQL(), dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB)
}

// overnight is longer than any test: what is granted before it is over was not granted by the
// expiry.
var overnight = sqllock.Options{TTL: 12 * time.Hour, ReleaseOnDisconnect: true}

// Rule: the lease of a process that was killed goes to a waiting process long before it expires,
// with a higher token. Without ReleaseOnDisconnect it does not.
func TestLeaseOfKilledHolder(t *testing.T) {
	t.Parallel()
	conformance.Run(t, inSession(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		counters(e, "key")
		other := joined(e.T, e.DSN, "", overnight, history.New(), nil)
		var before int64
		for range max(*rounds/8, 2) {
			holder := start(e.T, order{URL: e.DSN, Obey: true, Record: filepath.Join(e.TempDir(), "child"), Options: overnight})
			holder.wants("ok", "acquire key")
			got := waits(e, other, "key")
			holder.signal(syscall.SIGKILL)
			killed := time.Now()
			lease := <-got
			if lease == nil {
				return
			}
			e.Logf("granted %v after the kill", time.Since(killed).Round(100*time.Microsecond))
			if lease.Token() <= before {
				e.Errorf("token %d after %d", lease.Token(), before)
			}
			before = lease.Token()
			e.MustRelease(lease)
		}

		without := overnight
		without.ReleaseOnDisconnect = false
		holder := start(e.T, order{URL: e.DSN, Obey: true, Record: filepath.Join(e.TempDir(), "without"), Options: without})
		holder.wants("ok", "acquire key")
		holder.kill()
		ctx, cancel := context.WithTimeout(e.Ctx, time.Second)
		defer cancel()
		if _, err := other.locks.Acquire(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("without the option: %v", err)
		}
	})
}

// Rule: in a silent network, no other process is granted the lock before the holder's context has
// ended. It is granted before its expiry only after the server has seen the session end.
func TestSessionInSilence(t *testing.T) {
	t.Parallel()
	conformance.Run(t, inSession(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		w := again(e.T, &world[*sql.Tx]{Env: e})
		e.Cleanup(w.proxy.CutAll)
		holder := joined(e.T, dbtest.With(w.DSN, textOf(e.Engine)), "", overnight, history.New(), nil)
		other := joined(e.T, e.DSN, "", overnight, history.New(), nil)
		held, err := holder.locks.Acquire(e.Ctx, "key")
		e.Check(err)
		got := waits(e, other, "key")
		w.proxy.BlackHole(true)
		select {
		case <-held.Context().Done():
		case lease := <-got:
			e.Fatalf("another was granted the lock while the holder trusted its lease: %v", lease)
		}
		select {
		case lease := <-got:
			e.Errorf("another was granted the lock while the server saw the session: %v", lease)
		case <-time.After(500 * time.Millisecond):
		}
		w.proxy.CutAll()
		if lease := <-got; lease != nil {
			if lease.Token() <= held.Token() {
				e.Errorf("token %d after %d", lease.Token(), held.Token())
			}
			e.MustRelease(lease)
		}
		w.proxy.BlackHole(false)
	})
}

// waits starts a call that waits for a key, and returns when its process is seen to wait.
func waits(e *conformance.Env[*sql.Tx], p *party, key string) <-chan *sqllock.Lease {
	got := make(chan *sqllock.Lease, 1)
	go func() {
		lease, err := p.locks.Acquire(e.Ctx, key)
		if err != nil {
			e.Error(err)
		}
		got <- lease
	}()
	e.Eventually("it waits", func() bool {
		i, _, err := p.locks.Inspect(e.Ctx, key)
		return err == nil && i.Waiting > 0
	})
	return got
}

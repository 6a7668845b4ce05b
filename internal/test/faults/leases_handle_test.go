//go:build unix

package faults_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/internal/test/history"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestLeaseOfKilledHolderIsResumed checks that the handle of a process that was killed takes its lease up,
// with the same token, while others find it held.
func TestLeaseOfKilledHolderIsResumed(t *testing.T) {
	t.Parallel()
	conformance.Run(t, conformance.SQL(), func(e *conformance.Env[*sql.Tx]) {
		leaseTables(e)
		counters(e, "k")
		url := e.DSN
		if e.Engine == dbtest.SQLite {
			url += "?_pragma=busy_timeout(5000)"
		}
		holder := start(e.T, order{URL: url, Obey: true, Record: filepath.Join(e.TempDir(), "child"), Options: sqllock.Options{TTL: time.Hour}})
		holder.wants("ok", "acquire k")
		holder.wants("ok", "write "+guarded)
		holder.say("handle")
		h := sqllock.Handle(strings.TrimSpace(holder.line()))
		holder.hears("ok")
		holder.kill()

		other := joined(e.T, url, "", sqllock.Options{TTL: time.Hour}, history.New(), nil)
		_, err := other.locks.TryAcquire(e.Ctx, "k")
		var held *sqllock.HeldError
		if !errors.As(err, &held) {
			e.Fatal(err)
		}
		lease, err := other.locks.Resume(e.Ctx, h)
		e.Check(err)
		if lease.Token() != held.Token {
			e.Errorf("token %d, was %d", lease.Token(), held.Token)
		}
		e.Check(other.write(e.Ctx, lease, guarded, nil))
		e.Check(lease.Release(e.Ctx))
		history.CheckCommits(e, commits(e, guarded))
	})
}

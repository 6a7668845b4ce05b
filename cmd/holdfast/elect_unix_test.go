//go:build unix

package main

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestLostBeforeTheCommand has a lease that ends before its command begins. A leader knows that by lost, and a
// lock says that its command was not run. TestLostAtTheRelease has one of which only the release finds that it has ended: a
// leader's command is over, and is not run again.
func TestLostBeforeTheCommand(t *testing.T) {
	underLease(t, sqllock.DefaultTTL, []string{"true"}, func(s shop, locks *sqllock.Locker[*sql.Tx], lease *sqllock.Lease, run func() (*child, error, error)) {
		if had, err := locks.ForceRelease(s.Context(), "k", 0, holdfast.Actor{By: "ada", Reason: "a test"}); !had || err != nil {
			s.Fatal(had, err)
		}
		<-lease.Context().Done()
		over, lost, err := run()
		var status statusError
		if over != nil || !errors.Is(lost, sqllock.ErrLost) || !errors.As(err, &status) || status.status != exitNotRun {
			s.Errorf("%v, lost: %v; %v", over, lost, err)
		}
	})
}

func TestLostAtTheRelease(t *testing.T) {
	underLease(t, time.Hour, []string{"false"}, func(s shop, _ *sqllock.Locker[*sql.Tx], _ *sqllock.Lease, run func() (*child, error, error)) {
		if _, err := dbtest.OpenSQL(s.T, s.url).ExecContext(s.Context(), `DELETE FROM holdfast_locks`); err != nil {
			s.Fatal(err)
		}
		over, lost, err := run()
		var status statusError
		if over == nil || !errors.Is(lost, sqllock.ErrLost) || err != nil || !errors.As(ended(over), &status) || status.status != 1 {
			s.Errorf("%v, lost: %v; %v", over, lost, err)
		}
	})
}

// underLease calls f with a lease, and with what runs a command under it. Nothing renews one for an hour meanwhile.
func underLease(t *testing.T, ttl time.Duration, command []string, f func(s shop, locks *sqllock.Locker[*sql.Tx], lease *sqllock.Lease, run func() (*child, error, error))) {
	t.Helper()
	onShops(t, func(s shop) {
		db, err := holdfastsql.Open(s.Context(), dbtest.OpenSQL(s.T, s.url), holdfast.Options{SingleOwner: true})
		if err != nil {
			s.Fatal(err)
		}
		locks, err := sqllock.New(s.Context(), db)
		if err != nil {
			s.Fatal(err)
		}
		defer closeLocks(s.Context(), locks)
		lease, err := locks.Acquire(s.Context(), "k", sqllock.AcquireOptions{TTL: ttl})
		if err != nil {
			s.Fatal(err)
		}
		p, err := find(command)
		if err != nil {
			s.Fatal(err)
		}
		signals := newRelay(s.Context())
		defer signals.close()
		j := &job{relay: signals, program: p, cmd: &cobra.Command{}, db: db, key: "k"}
		f(s, locks, lease, func() (*child, error, error) { return j.underLease(s.Context(), lease, "") })
	})
}

//go:build unix

package main

import (
	"errors"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestLostBeforeTheCommand has a lease that ends before its command begins. A leader knows that by lost, and a
// lock says that its command was not run.
func TestLostBeforeTheCommand(t *testing.T) {
	onShops(t, func(s shop) {
		db, err := holdfastsql.Open(s.Context(), dbtest.OpenSQL(s.T, s.url), holdfast.Options{SingleOwner: true})
		if err != nil {
			s.Fatal(err)
		}
		locks, err := sqllock.New(s.Context(), db)
		if err != nil {
			s.Fatal(err)
		}
		lease, err := locks.Acquire(s.Context(), "k")
		if err != nil {
			s.Fatal(err)
		}
		if had, err := locks.ForceRelease(s.Context(), "k", 0, holdfast.Actor{By: "ada", Reason: "a test"}); !had || err != nil {
			s.Fatal(had, err)
		}
		<-lease.Context().Done()
		p, err := find([]string{"true"})
		if err != nil {
			s.Fatal(err)
		}
		signals := newRelay(s.Context())
		defer signals.close()
		j := &job{relay: signals, program: p, cmd: &cobra.Command{}, db: db, key: "k"}
		lost, err := j.underLease(s.Context(), lease, "")
		var status statusError
		if !errors.Is(lost, sqllock.ErrLost) || !errors.As(err, &status) || status.status != exitNotRun {
			s.Errorf("lost: %v; %v", lost, err)
		}
	})
}

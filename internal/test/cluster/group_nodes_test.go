//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/sqllock"
)

// TestGroupPrimaries checks what is safe on several primaries at once and what is not, each next
// to a naive form that fails.
func TestGroupPrimaries(t *testing.T) {
	g := startGroup(t, 3, true)
	g.business()
	for name, f := range map[string]func(t *testing.T, urls []string){
		"RowLocks": rowLocksOnTwo, "Guard": guardOnTwo, "Conflict": conflictOnTwo, "Audit": auditOnTwo, "Reads": groupReads,
	} {
		t.Run(name, func(t *testing.T) { f(t, g.urls()) })
	}
	t.Run("Consistency", func(t *testing.T) { groupConsistency(t, g) })
}

// groupReads hands a lease over between two primaries. Each knows what the other has committed.
func groupReads(t *testing.T, urls []string) {
	a, b := openOn(t, urls[0], sqllock.Options{}), openOn(t, urls[1], sqllock.Options{})
	for range 100 {
		lease, err := a.locks.Acquire(t.Context(), "read")
		if err != nil {
			t.Fatal(err)
		}
		tx := b.begin()
		if err := b.locks.Guard(t.Context(), tx, b.locks.Term("read", lease.Token())); err != nil {
			t.Errorf("a term that another primary has granted: %v", err)
		}
		_ = tx.Rollback()
		if _, err := b.locks.TryAcquire(t.Context(), "read"); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("on another primary: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, err := b.locks.TryAcquire(t.Context(), "read")
		if err != nil {
			t.Fatalf("free, and not to be had on another primary: %v", err)
		}
		_ = next.Release(t.Context())
	}
}

// groupConsistency checks that a session which does not wait for the other primaries is refused,
// unless one of them is the only writer.
func groupConsistency(t *testing.T, g *group) {
	pool := dbtest.OpenSQL(t, g.nodes[0].url())
	var unsupported *holdfast.UnsupportedError
	if _, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true}); !errors.As(err, &unsupported) || unsupported.Check != "group consistency" {
		t.Errorf("opened with the server's own consistency: %v", err)
	}
	db, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true, SingleWriter: true})
	if err != nil {
		t.Fatal(err)
	}
	if db.Capabilities().MultiPrimary {
		t.Error("there is a single writer, and the capability says that there are several")
	}
}

// TestGroupMembers checks that a server is used only as long as it is the primary of its group.
func TestGroupMembers(t *testing.T) {
	g := startGroup(t, 3, false)
	g.business()
	refused := func(what, url string) {
		t.Helper()
		if _, err := holdfastsql.Open(t.Context(), dbtest.OpenSQL(t, url), holdfast.Options{SingleOwner: true}); !errors.Is(err, holdfast.ErrUnsupported) || !strings.Contains(err.Error(), "group_replication_group_name") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a secondary", g.nodes[1].url())

	// The members of the group go on, with another primary. The former one comes back, outside of
	// the group, and takes writes.
	first := g.nodes[0]
	locks := openOn(t, first.url(), sqllock.Options{}).locks
	lease, err := locks.Acquire(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	first.kill()
	second := g.primary(g.nodes[1:]...)
	first.restart()
	if _, err := first.pool.ExecContext(t.Context(), `UPDATE own.orders SET refunded = 1 WHERE order_no = 1`); err != nil {
		t.Errorf("the naive write, outside of the group, is refused: %v", err)
	}
	refused("a member outside of its group", first.url())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var unsupported *holdfast.UnsupportedError
	if _, err := locks.TryAcquire(ctx, "after"); !errors.As(err, &unsupported) || unsupported.Check != "group replication" {
		t.Errorf("opened when it was in its group: %v", err)
	}
	_ = lease.Release(ctx)
	next, err := openOn(t, second.url(), sqllock.Options{}).locks.Acquire(ctx, "before")
	if err != nil || next.Token() <= lease.Token() {
		t.Fatalf("on the new primary: %v", err)
	}
	_ = next.Release(ctx)
}

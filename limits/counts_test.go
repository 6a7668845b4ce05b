package limits_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/limits"
)

// TestStatementsOfLimits counts the statements that a call sends within its transaction.
func TestStatementsOfLimits(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var sent []string
			e := conformance.New(t, conformance.SQL(), engine, holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, s holdfast.Statement) {
				if name, of := strings.CutPrefix(s.Name, "limits."); of && name != "begin" { // SQLite's
					mu.Lock()
					sent = append(sent, name)
					mu.Unlock()
				}
			}}})
			l, err := limits.New(e.Ctx, e.DB, "refunds")
			e.Check(err)
			_, err = l.Set(e.Ctx, "a", 100)
			e.Check(err)
			count := func(want string, call func(ctx context.Context, tx *sql.Tx) error) {
				t.Helper()
				sent = nil
				e.Check(e.DB.InTx(e.Ctx, call))
				if !slices.Equal(sent, strings.Fields(want)) {
					t.Errorf("sent %v, want %s", sent, want)
				}
			}
			ask := func(id string) limits.Request { return limits.Request{Key: "a", ID: id, Amount: 10} }
			reserve := func(ctx context.Context, tx *sql.Tx) error { _, err := l.ReserveTx(ctx, tx, ask("1")); return err }
			count("reserve insert", reserve)
			count("reserve insert change locked", reserve)
			count("take insert", func(ctx context.Context, tx *sql.Tx) error { _, err := l.TakeTx(ctx, tx, ask("2")); return err })
			count("lock locked end change", func(ctx context.Context, tx *sql.Tx) error { _, err := l.CaptureTx(ctx, tx, ask("1")); return err })
			count("lock locked", func(ctx context.Context, tx *sql.Tx) error { _, err := l.CaptureTx(ctx, tx, ask("1")); return err })
		})
	}
}

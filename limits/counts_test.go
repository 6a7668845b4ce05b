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

// statements are the names of limits' statements that were sent.
type statements struct {
	mu   sync.Mutex
	sent []string
}

func (s *statements) observe() holdfast.Options {
	return holdfast.Options{Observers: []holdfast.Observer{func(_ context.Context, stmt holdfast.Statement) {
		if name, of := strings.CutPrefix(stmt.Name, "limits."); of && name != "begin" { // SQLite's
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent = append(s.sent, name)
		}
	}}}
}

// want checks which statements a call sends.
func (s *statements) want(t *testing.T, want string, call func() error) {
	t.Helper()
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	if err := call(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.sent, strings.Fields(want)) {
		t.Errorf("sent %v, want %s", s.sent, want)
	}
}

// TestStatementsOfLimits counts the statements that a call sends within its transaction.
func TestStatementsOfLimits(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			sent := &statements{}
			e := conformance.New(t, conformance.SQL(), engine, sent.observe())
			l, err := limits.New(e.Ctx, e.DB, "refunds")
			e.Check(err)
			_, err = l.Set(e.Ctx, "a", 100)
			e.Check(err)
			count := func(want string, call func(ctx context.Context, tx *sql.Tx) error) {
				t.Helper()
				sent.want(t, want, func() error { return e.DB.InTx(e.Ctx, call) })
			}
			ask := func(id string) limits.Request { return limits.Request{Key: "a", ID: id, Amount: 10} }
			reserve := func(ctx context.Context, tx *sql.Tx) error { _, err := l.ReserveTx(ctx, tx, ask("1")); return err }
			count("reserve insert", reserve)
			count("reserve insert change locked", reserve)
			count("take insert", func(ctx context.Context, tx *sql.Tx) error { _, err := l.TakeTx(ctx, tx, ask("2")); return err })
			count("lock locked end change", func(ctx context.Context, tx *sql.Tx) error { _, err := l.CaptureTx(ctx, tx, ask("1")); return err })
			count("lock locked", func(ctx context.Context, tx *sql.Tx) error { _, err := l.CaptureTx(ctx, tx, ask("1")); return err })

			// The same for all that is left, in either table.
			e.Must(`CREATE TABLE orders (order_no ` + e.Text() + ` NOT NULL PRIMARY KEY, paid BIGINT NOT NULL, held BIGINT NOT NULL, refunded BIGINT NOT NULL)`)
			e.Must(`INSERT INTO orders (order_no, paid, held, refunded) VALUES ('all', 30, 0, 0)`)
			orders, err := limits.New(e.Ctx, e.DB, "orders", limits.Options{Table: &limits.Table{TableSpec: holdfast.TableSpec{Table: "orders", Key: []string{"order_no"}}, Limit: "paid", Reserved: "held", Captured: "refunded"}})
			e.Check(err)
			_, err = l.Set(e.Ctx, "all", 30)
			e.Check(err)
			for _, l := range []*limits.Limits[*sql.Tx]{l, orders} {
				all := limits.Request{Key: "all", ID: "all of it", Amount: 30}
				count("reserve insert", func(ctx context.Context, tx *sql.Tx) error { _, err := l.ReserveTx(ctx, tx, all); return err })
				_, err := l.Void(e.Ctx, all)
				e.Check(err)
				all.ID = "all again"
				count("take insert", func(ctx context.Context, tx *sql.Tx) error { _, err := l.TakeTx(ctx, tx, all); return err })
			}
		})
	}
}

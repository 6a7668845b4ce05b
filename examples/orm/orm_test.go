package orm_test

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/examples/orm"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
	"github.com/holdfast-go/holdfast/sqllock"
)

var (
	//go:embed sqlc/mysql.sql
	mysqlTables string
	//go:embed sqlc/postgres.sql
	postgresTables string
)

// example is the interface that each library's example implements.
type example interface {
	Refund(ctx context.Context, r orm.Refund) (idempotency.Result[string], error)
	RefundBound(ctx context.Context, r orm.Refund) (idempotency.Result[string], error)
	Settle(ctx context.Context, s orm.Settlement, term sqllock.Term) (idempotency.Outcome, error)
}

// shop is a database with one paid order of 1000 cents.
type shop struct {
	*testing.T

	engine dbtest.Engine
	url    string
	pool   *sql.DB
}

var paid = orm.Refund{OrderNo: "42", RefundNo: "1", Cents: 400}

func open(t *testing.T, engine dbtest.Engine) *shop {
	t.Helper()
	url := dbtest.DSN(t, engine)
	return filled(&shop{T: t, engine: engine, url: url, pool: dbtest.OpenSQL(t, url)})
}

// openConnected is open with Holdfast's connector.
func openConnected(t *testing.T, engine dbtest.Engine) *shop {
	t.Helper()
	url, wrap := dbtest.DSN(t, engine), holdfastsql.Connector
	if engine == dbtest.Postgres {
		wrap = holdfastpgx.Connector
	}
	return filled(&shop{T: t, engine: engine, url: url, pool: dbtest.OpenConnector(t, url, wrap)})
}

func filled(s *shop) *shop {
	s.Helper()
	s.must(migrations.Up(s.Context(), s.pool))
	tables := postgresTables
	if s.innoDB() {
		tables = mysqlTables
	}
	for table := range strings.SplitSeq(tables, ";") {
		if strings.TrimSpace(table) != "" {
			s.exec(table)
		}
	}
	s.exec(`INSERT INTO orders (order_no, paid) VALUES ('42', 1000), ('43', 1000)`)
	return s
}

func (s *shop) innoDB() bool { return s.engine == dbtest.MySQL || s.engine == dbtest.MariaDB }

func (s *shop) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *shop) exec(query string) {
	s.Helper()
	_, err := s.pool.ExecContext(s.Context(), query)
	s.must(err)
}

// want checks the result of a counting query.
func (s *shop) want(query string, want int64) {
	s.Helper()
	var n int64
	s.must(s.pool.QueryRowContext(s.Context(), query).Scan(&n))
	if n != want {
		s.Errorf("%s: got %d, want %d", query, n, want)
	}
}

// wantBooks checks the effects and the records.
func (s *shop) wantBooks(refunds, records, cents int64) {
	s.Helper()
	s.want(`SELECT COUNT(*) FROM refunds`, refunds)
	s.want(`SELECT COUNT(*) FROM holdfast_records`, records)
	s.want(`SELECT refunded FROM orders WHERE order_no = '42'`, cents)
}

func (s *shop) holdfast() *orm.Holdfast[*sql.Tx] {
	s.Helper()
	db, err := holdfastsql.Open(s.Context(), s.pool, holdfast.Options{SingleOwner: true})
	s.must(err)
	return opened(s, db)
}

// native opens a pgx pool on the same database.
func (s *shop) native() *orm.PGX {
	s.Helper()
	pool := dbtest.OpenPgx(s, s.url)
	db, err := holdfastpgx.Open(s.Context(), pool, holdfast.Options{SingleOwner: true})
	s.must(err)
	return &orm.PGX{Holdfast: opened[pgx.Tx](s, db), Pool: pool}
}

func opened[Tx any](s *shop, db *holdfast.DB[Tx]) *orm.Holdfast[Tx] {
	s.Helper()
	h, err := orm.Open(s.Context(), db)
	s.must(err)
	s.Cleanup(func() { s.must(h.Locks.Close(context.WithoutCancel(s.Context()))) })
	return h
}

// GORM's cache of prepared statements starts a goroutine that never ends.
func TestMain(m *testing.M) {
	dbtest.VerifyNoLeaks(m, "gorm.io/gorm/internal/lru.NewLRU[...].func1")
}

// suite holds the tests that every example must pass. Each test has a separate database.
func suite(t *testing.T, s *shop, e example) {
	t.Helper()
	ctx := t.Context()
	type refund func(context.Context, orm.Refund) (idempotency.Result[string], error)
	both := map[string]refund{"library begins": e.Refund, "holdfast begins": e.RefundBound}
	wipe := func() {
		s.exec(`DELETE FROM refunds`)
		s.exec(`DELETE FROM holdfast_records`)
		s.exec(`UPDATE orders SET paid = 1000, refunded = 0`)
	}

	for begins, refund := range both {
		// A duplicate is replayed, whether the library or Holdfast begins the transaction.
		wipe()
		first, err := refund(ctx, paid)
		s.must(err)
		if first.Outcome != idempotency.Executed || first.Value == "" {
			t.Errorf("%s: %+v", begins, first)
		}
		for other, again := range both {
			if res, err := again(ctx, paid); err != nil || res.Outcome != idempotency.Replayed || res.Value != first.Value {
				t.Errorf("%s, then %s: %+v, %v", begins, other, res, err)
			}
		}
		s.wantBooks(1, 1, 400)
		otherRequest := paid
		otherRequest.Cents = 1
		if _, err := refund(ctx, otherRequest); !errors.Is(err, idempotency.ErrMismatch) {
			t.Errorf("%s: %v, want a mismatch", begins, err)
		}
		s.wantBooks(1, 1, 400)

		// When the database refuses a write of the library, the record is rolled back too. Here a
		// CHECK of the table fails; if the library begins the transaction, Holdfast has already
		// written its result.
		wipe()
		s.exec(`UPDATE orders SET paid = 100`)
		if res, err := refund(ctx, paid); err == nil {
			t.Errorf("%s: refunded beyond what was paid: %+v", begins, res)
		}
		s.wantBooks(0, 0, 0)
		s.exec(`UPDATE orders SET paid = 1000`)
		if res, err := refund(ctx, paid); err != nil || res.Outcome != idempotency.Executed {
			t.Errorf("%s, after a rollback: %+v, %v", begins, res, err)
		}
		s.wantBooks(1, 1, 400)

		// An update that matches no row is not an error for the library.
		wipe()
		if _, err := refund(ctx, orm.Refund{OrderNo: "none", RefundNo: "1", Cents: 1}); !errors.Is(err, orm.ErrNoOrder) {
			t.Errorf("%s: %v, want %v", begins, err, orm.ErrNoOrder)
		}
		s.wantBooks(0, 0, 0)

		// A rejection is committed and replayed.
		nothing := paid
		nothing.Cents = 0
		for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed} {
			res, err := refund(ctx, nothing)
			if rejection := (*idempotency.Rejection)(nil); !errors.As(err, &rejection) || res.Outcome != want {
				t.Errorf("%s: %v, %v, want a rejection that is %v", begins, res.Outcome, err, want)
			}
		}
		s.wantBooks(0, 1, 0)
	}

	wipe()
	var storm sync.WaitGroup
	results := make(chan idempotency.Outcome, 16)
	for i := range cap(results) {
		refund := e.Refund
		if i%2 == 0 {
			refund = e.RefundBound
		}
		storm.Go(func() {
			res, err := refund(ctx, paid)
			if err != nil {
				t.Errorf("storm: %v", err)
			}
			results <- res.Outcome
		})
	}
	storm.Wait()
	close(results)
	executed := 0
	for outcome := range results {
		if outcome == idempotency.Executed {
			executed++
		}
	}
	if executed != 1 {
		t.Errorf("%d of %d were executed", executed, cap(results))
	}
	s.wantBooks(1, 1, 400)
}

// settles is the suite of Settle: the row as the record, the guard, the lock.
func settles[Tx any](t *testing.T, s *shop, h *orm.Holdfast[Tx], e example) {
	t.Helper()
	ctx := t.Context()
	day := orm.Settlement{Merchant: "m", Day: "2026-11-21", Cents: 700}
	lease, err := h.Locks.Acquire(ctx, "settlement")
	s.must(err)
	want := func(settlements, payouts int64) {
		t.Helper()
		s.want(`SELECT COUNT(*) FROM settlements`, settlements)
		s.want(`SELECT COUNT(*) FROM payouts`, payouts)
	}

	for _, want := range []idempotency.Outcome{idempotency.Executed, idempotency.Replayed, idempotency.Replayed} {
		if outcome, err := e.Settle(ctx, day, lease.Term()); err != nil || outcome != want {
			t.Errorf("settle: %v, %v, want %v", outcome, err, want)
		}
	}
	want(1, 1)
	other := day
	other.Cents++
	if _, err := e.Settle(ctx, other, lease.Term()); !errors.Is(err, idempotency.ErrMismatch) {
		t.Errorf("another sum: %v, want a mismatch", err)
	}
	want(1, 1)

	// The table refuses the payout, and the record is rolled back with it.
	refused := orm.Settlement{Merchant: "m", Day: "2026-11-22", Cents: -1}
	if _, err := e.Settle(ctx, refused, lease.Term()); err == nil {
		t.Error("a payout below zero")
	}
	want(1, 1)
	refused.Cents = 1
	if outcome, err := e.Settle(ctx, refused, lease.Term()); err != nil || outcome != idempotency.Executed {
		t.Errorf("after a rollback: %v, %v", outcome, err)
	}
	want(2, 2)

	// Another process holds the merchant's lock.
	day.Day = "2026-11-23"
	held := make(chan struct{})
	free := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- h.DB.InTx(ctx, func(ctx context.Context, tx Tx) error {
			if err := h.RowLocks.LockTx(ctx, tx, "merchant/m", holdfast.Forever); err != nil {
				return err
			}
			held <- struct{}{}
			<-free
			return nil
		})
	}()
	<-held
	settled := make(chan error, 1)
	go func() {
		_, err := e.Settle(ctx, day, lease.Term())
		settled <- err
	}()
	select {
	case err := <-settled:
		t.Errorf("settled under another's lock: %v", err)
		settled <- err
	case <-time.After(200 * time.Millisecond):
	}
	close(free)
	s.must(<-ended)
	s.must(<-settled)
	want(3, 3)

	// The lease is taken away, and later writes are refused.
	day.Day = "2026-11-24"
	if _, err := h.Locks.ForceRelease(ctx, "settlement", 0, holdfast.Actor{By: "test", Reason: "test"}); err != nil {
		t.Error(err)
	}
	if _, err := e.Settle(ctx, day, lease.Term()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("a former term: %v, want ErrLost", err)
	}
	want(3, 3)
	_ = lease.Release(ctx)
}

// writer writes with a library in a given transaction.
type writer struct {
	exec   func(query string) error
	create func(r orm.Refund) error
}

// lose makes the engine end the transaction, as a deadlock does on InnoDB, or on PostgreSQL
// makes every later statement in it fail. The library must report the error.
func (s *shop) lose(exec func(query string) error) error {
	s.Helper()
	if s.engine == dbtest.SQLite {
		return exec(`INSERT OR ROLLBACK INTO orders (order_no, paid) VALUES ('42', 1)`)
	}
	if s.engine == dbtest.Postgres {
		return exec(`INSERT INTO orders (order_no, paid) VALUES ('42', 1)`)
	}
	// InnoDB rolls back the transaction that has changed fewer rows.
	s.exec(`CREATE TABLE heavy (n INT)`)
	defer s.exec(`DROP TABLE heavy`)
	other, err := s.pool.BeginTx(s.Context(), nil)
	s.must(err)
	defer func() { _ = other.Rollback() }()
	_, err = other.Exec(`INSERT INTO heavy VALUES (1)` + strings.Repeat(`, (1)`, 200))
	s.must(err)
	_, err = other.Exec(`UPDATE orders SET paid = paid + 1 WHERE order_no = '43'`)
	s.must(err)
	s.must(exec(`UPDATE orders SET paid = paid + 1 WHERE order_no = '42'`))
	waiting := make(chan error, 1)
	go func() {
		_, err := other.Exec(`UPDATE orders SET paid = paid + 1 WHERE order_no = '42'`)
		waiting <- err
	}()
	time.Sleep(100 * time.Millisecond)
	err = exec(`UPDATE orders SET paid = paid + 1 WHERE order_no = '43'`)
	s.must(<-waiting) // otherwise the other transaction was rolled back
	return err
}

// swallowed ignores the library's error; the next statement would then commit on its own. If
// Holdfast began the transaction, that statement is never committed.
func swallowed[Tx any](t *testing.T, s *shop, h *orm.Holdfast[Tx], bind func(ctx context.Context, tx Tx) writer) {
	t.Helper()
	ctx := t.Context()
	careless := func(ctx context.Context, tx Tx) (string, error) {
		w := bind(ctx, tx)
		if err := s.lose(w.exec); err == nil {
			t.Error("the transaction was not lost")
		}
		_ = w.create(paid)
		return "done", nil
	}
	op := idempotency.Op{Name: "careless", Key: "1", NoFingerprint: true}
	if res, err := idempotency.Do(ctx, h.Store, op, careless); !errors.Is(err, holdfast.ErrTxLost) {
		t.Errorf("Do: %+v, %v, want ErrTxLost", res, err)
	}
	s.wantBooks(0, 0, 0)
	err := h.DB.InTx(ctx, func(ctx context.Context, tx Tx) error {
		_, _ = idempotency.DoTx(ctx, h.Store, tx, op, careless) // the error is ignored too
		_ = bind(ctx, tx).create(paid)
		return nil
	})
	if !errors.Is(err, holdfast.ErrTxLost) {
		t.Errorf("InTx: %v, want ErrTxLost", err)
	}
	s.wantBooks(0, 0, 0)
	// The pool's connections still work.
	if res, err := idempotency.Do(ctx, h.Store, op, func(ctx context.Context, tx Tx) (string, error) {
		return "done", bind(ctx, tx).create(paid)
	}); err != nil || res.Outcome != idempotency.Executed {
		t.Errorf("afterwards: %+v, %v", res, err)
	}
	s.wantBooks(1, 1, 0)
}

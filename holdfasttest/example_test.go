package holdfasttest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/sqllock"
)

// example stands for the *testing.T of a test.
type example struct{ dirs []string }

func (*example) Helper()        {}
func (*example) Cleanup(func()) {}
func (*example) Fatalf(format string, args ...any) {
	log.Fatalf(format, args...)
}

func (e *example) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfasttest")
	if err != nil {
		log.Fatal(err)
	}
	e.dirs = append(e.dirs, dir)
	return dir
}

func (e *example) end() {
	for _, dir := range e.dirs {
		_ = os.RemoveAll(dir)
	}
}

// Refunds is the program under test.
type Refunds struct{ Store *idempotency.Store[*sql.Tx] }

func op(merchant, order string) idempotency.Op {
	return idempotency.Op{Owner: merchant, Name: "refund", Key: order, Request: order}
}

// Refund returns the answer that the program's clients see.
func (r *Refunds) Refund(ctx context.Context, merchant, order string) string {
	res, err := idempotency.Do(ctx, r.Store, op(merchant, order), func(ctx context.Context, tx *sql.Tx) (idempotency.ID, error) {
		_, err := tx.ExecContext(ctx, `INSERT INTO refunds (merchant, order_no) VALUES (?, ?)`, merchant, order)
		return idempotency.ID("refund of " + order), err
	})
	var rejection *idempotency.Rejection
	var expired *idempotency.ExpiredError
	switch {
	case err == nil:
		return fmt.Sprintf("200 %s (%v)", res.Value, res.Outcome)
	case errors.As(err, &rejection):
		return "422 " + rejection.Code
	case errors.Is(err, idempotency.ErrMismatch):
		return "422 another request had this key"
	case errors.As(err, &expired):
		return "410 done: " + expired.BusinessID
	case errors.Is(err, idempotency.ErrInProgress):
		return "409 try again later"
	case errors.Is(err, idempotency.ErrUnknown):
		return "503 try again with the same key"
	}
	return "500 " + err.Error()
}

// newRefunds sets up each test of the program.
func newRefunds(t holdfasttest.TB) (*holdfasttest.Kit[*sql.Tx], *Refunds) {
	kit := holdfasttest.SQLite(t)
	if _, err := kit.Pool.ExecContext(context.Background(), `CREATE TABLE refunds (merchant TEXT NOT NULL, order_no TEXT NOT NULL)`); err != nil {
		t.Fatalf("%v", err)
	}
	store, err := idempotency.New(context.Background(), kit.DB)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return kit, &Refunds{store}
}

// Each outcome that a program must handle, produced for one key.
func Example() {
	t := &example{} // in a test, its *testing.T
	defer t.end()
	ctx := context.Background()
	kit, refunds := newRefunds(t)

	holdfasttest.Done(kit, refunds.Store, op(kit.Owner, "A"), idempotency.ID("refund of A"))
	fmt.Println(refunds.Refund(ctx, kit.Owner, "A"))

	kit.Reject(refunds.Store, op(kit.Owner, "B"), "over_refund", "more than was paid")
	fmt.Println(refunds.Refund(ctx, kit.Owner, "B"))

	kit.Mismatch(refunds.Store, op(kit.Owner, "C"))
	fmt.Println(refunds.Refund(ctx, kit.Owner, "C"))

	kit.Expire(refunds.Store, op(kit.Owner, "D"), "refund of D")
	fmt.Println(refunds.Refund(ctx, kit.Owner, "D"))

	end := kit.InProgress(refunds.Store, op(kit.Owner, "E"))
	fmt.Println(refunds.Refund(ctx, kit.Owner, "E"))
	end()
	fmt.Println(refunds.Refund(ctx, kit.Owner, "E"))
	// Output:
	// 200 refund of A (replayed)
	// 422 over_refund
	// 422 another request had this key
	// 410 done: refund of D
	// 409 try again later
	// 200 refund of E (executed)
}

// The answer to a COMMIT is lost. Whether or not it committed, the client must retry with the
// same key, and there is one refund.
func ExampleKit_LoseCommit() {
	t := &example{}
	defer t.end()
	ctx := context.Background()
	kit, refunds := newRefunds(t)
	for _, committed := range []bool{true, false} {
		order := fmt.Sprint("order ", committed)
		kit.LoseCommit(committed)
		fmt.Println(refunds.Refund(ctx, kit.Owner, order))
		fmt.Println(refunds.Refund(ctx, kit.Owner, order))
		var n int
		if err := kit.Pool.QueryRowContext(ctx, `SELECT COUNT(*) FROM refunds WHERE merchant = ? AND order_no = ?`, kit.Owner, order).Scan(&n); err != nil {
			t.Fatalf("%v", err)
		}
		fmt.Println("refunds:", n)
	}
	// Output:
	// 503 try again with the same key
	// 200 refund of order true (replayed)
	// refunds: 1
	// 503 try again with the same key
	// 200 refund of order false (executed)
	// refunds: 1
}

// A worker that has lost its lease cannot write behind its guard.
func ExampleKit_LoseLease() {
	t := &example{}
	defer t.end()
	ctx := context.Background()
	kit, _ := newRefunds(t)
	locker, err := sqllock.New(ctx, kit.DB, sqllock.Options{TTL: 300 * time.Millisecond})
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = locker.Close(ctx) }()
	locks := locker.For(kit.Owner)
	lease, err := locks.Acquire(ctx, "order A")
	if err != nil {
		t.Fatalf("%v", err)
	}
	kit.LoseLease(kit.Owner, "order A")

	tx, err := kit.Pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	fmt.Println("guarded:", errors.Is(locks.Guard(ctx, tx, lease.Term()), sqllock.ErrLost))
	<-lease.Context().Done()
	fmt.Println("working on:", errors.Is(context.Cause(lease.Context()), sqllock.ErrLost))
	// Output:
	// guarded: true
	// working on: true
}

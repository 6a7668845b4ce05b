package staged_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/holdfasttest"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/test/exampletb"
	"github.com/holdfast-go/holdfast/migrations"
)

// exampleBank accepts an idempotency key, and its first answer is lost.
type exampleBank struct{ paid map[string]string }

func (b *exampleBank) Refund(_ context.Context, key string, cents int64) (string, error) {
	if ref, ok := b.paid[key]; ok {
		return ref, nil
	}
	b.paid[key] = fmt.Sprintf("bank reference %d for %d cents", len(b.paid)+1, cents)
	return "", errors.New("timeout")
}

func (b *exampleBank) Find(_ context.Context, key string) (string, error) {
	if ref, ok := b.paid[key]; ok {
		return ref, nil
	}
	return "", staged.NotDone(errors.New("no refund with this key"))
}

type request struct {
	No    string
	Cents int64
}

func refundsAt(store *idempotency.Store[*sql.Tx], bank *exampleBank) (*staged.Runner[request, string, *sql.Tx], error) {
	return staged.New(store, staged.Workflow[request, string, *sql.Tx]{
		Name: "refund", Backoff: time.Millisecond, // for the example
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], req request) (string, error) {
			if _, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx *sql.Tx) (bool, error) {
				_, err := tx.ExecContext(ctx, `INSERT INTO refunds (refund_no, cents) VALUES (?, ?)`, req.No, req.Cents)
				return true, err
			}); err != nil {
				return "", err
			}
			ref, err := staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", Reconcile: bank.Find},
				func(ctx context.Context, key string) (string, error) { return bank.Refund(ctx, key, req.Cents) })
			if err != nil {
				return "", err
			}
			return staged.Local(ctx, r, "close", func(ctx context.Context, tx *sql.Tx) (string, error) {
				_, err := tx.ExecContext(ctx, `UPDATE refunds SET bank_ref = ? WHERE refund_no = ?`, ref, req.No)
				return ref, err
			})
		},
	})
}

// A refund at a bank is booked here, paid at the bank and closed here. The bank's answer is
// lost, so the next attempt queries the bank before it does anything.
func ExampleNew() {
	if err := stagedExample(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// first: unknown for now: true
	// completer: 1 found, 1 succeeded
	// then: replayed: bank reference 1 for 1250 cents
	// refunds at the bank: 1
}

func stagedExample(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.ExecContext(ctx, `CREATE TABLE refunds (refund_no TEXT PRIMARY KEY, cents INTEGER, bank_ref TEXT)`); err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool)
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db)
	if err != nil {
		return err
	}
	bank := &exampleBank{paid: map[string]string{}}

	refunds, err := refundsAt(store, bank)
	if err != nil {
		return err
	}

	op := idempotency.Op{Owner: "shop-7", Key: idempotency.KeyOf("42", "1")} // order, refund number
	_, err = refunds.Do(ctx, op, request{"42/1", 1250})
	fmt.Println("first: unknown for now:", errors.Is(err, idempotency.ErrUnknown))

	time.Sleep(2 * time.Millisecond)
	done, err := refunds.Complete(ctx) // RunCompleter repeats this until its context ends
	if err != nil {
		return err
	}
	fmt.Printf("completer: %d found, %d succeeded\n", done.Found, done.Succeeded)

	res, err := refunds.Do(ctx, op, request{"42/1", 1250})
	if err != nil {
		return err
	}
	fmt.Printf("then: %v: %s\n", res.Outcome, res.Value)
	fmt.Println("refunds at the bank:", len(bank.paid))
	return nil
}

// A refund fails after it had succeeded. The event is stored once, together with its bookings.
func ExampleHandleEvent() {
	t := exampletb.New()
	defer t.End()
	ctx := context.Background()
	kit := holdfasttest.SQLite(t, holdfast.Options{SingleOwner: true})
	store, err := idempotency.New(ctx, kit.DB)
	if err != nil {
		panic(err)
	}
	refunds, err := staged.New(store, staged.Workflow[int, string, *sql.Tx]{
		Name: "refund",
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], _ int) (string, error) {
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(context.Context, string) (string, error) {
				return "bank reference 7", nil
			})
		},
	})
	if err != nil {
		panic(err)
	}
	if _, err := refunds.Do(ctx, idempotency.Op{Key: "42/1"}, 1250); err != nil {
		panic(err)
	}
	event := staged.ProviderEvent{
		ID: "evt_1", Kind: "refund.failed",
		ProviderKey: refunds.ProviderKey(staged.Ref{Key: "42/1"}, "pay"),
	}
	for range 2 {
		isNew, err := staged.HandleEvent(ctx, store, event, func(_ context.Context, _ *sql.Tx, op staged.Operation) error {
			fmt.Println("booking it:", op.Key, op.State)
			return nil
		})
		fmt.Println(isNew, err)
	}
	// Output:
	// booking it: 42/1 succeeded
	// true <nil>
	// false <nil>
}
